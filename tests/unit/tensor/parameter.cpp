// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/parameter.hpp"

#include <catch2/catch.hpp>

namespace tensor = lockstep::tensor;

TEST_CASE("tensor/parameter: sizes and offsets of parameters that lie one after the other", "[tensor]") {
    static constexpr std::array all{
        tensor::parameter{.name = "weight", .rows = 5, .columns = 7},
        tensor::parameter{.name = "bias", .columns = 7, .initial = tensor::start::zeros, .decays = false},
        tensor::parameter{.name = "scale", .rows = 2},
    };
    STATIC_REQUIRE(all[0].size() == 35 && all[1].size() == 7 && all[2].size() == 2);
    STATIC_REQUIRE(tensor::total_size(all) == 44);
    STATIC_REQUIRE(tensor::offset_of(all, 0) == 0 && tensor::offset_of(all, 1) == 35 &&
                   tensor::offset_of(all, 2) == 42);
    STATIC_REQUIRE(tensor::offset_of(all, 3) == tensor::total_size(all));
    STATIC_REQUIRE(all[0].decays && all[0].initial == tensor::start::random && !all[1].decays);
    STATIC_REQUIRE(tensor::total_size(std::array<tensor::parameter, 0>{}) == 0);
}
