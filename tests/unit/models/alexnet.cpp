// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/alexnet.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/alexnet: parameters and operations in one column", "[models]") {
    using net = network<ls::models::alexnet>;
    STATIC_REQUIRE(net::parameters == 62'378'344);
    STATIC_REQUIRE(std::is_same_v<net::layer<15>::input, ls::tensor::shape<6, 6, 256>>);
    constexpr double convolutions = 55.0 * 55 * 363 * 96 + 27.0 * 27 * 2400 * 256 + 13.0 * 13 * 9 * (256.0 * 384 + 384 * 384 + 384 * 256);
    STATIC_REQUIRE(weight_flops<net>() == 2 * (convolutions + 9216.0 * 4096 + 4096 * 4096 + 4096 * 1000));
}
