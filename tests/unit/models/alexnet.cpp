// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/alexnet.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/alexnet: parameters and operations in one column", "[models]") {
    using net = network<ls::models::alexnet>;
    STATIC_REQUIRE(net::parameters == 62'378'344);
    STATIC_REQUIRE(std::is_same_v<net::layer<15>::input, ls::tensor::shape<6, 6, 256>>);
    constexpr double convolutions =
        55.0 * 55 * 363 * 96 + 27.0 * 27 * 2400 * 256 + 13.0 * 13 * 9 * (256.0 * 384 + 384 * 384 + 384 * 256);
    STATIC_REQUIRE(weight_flops<net>() == 2 * (convolutions + 9216.0 * 4096 + 4096 * 4096 + 4096 * 1000));
}

TEST_CASE("models/alexnet: parameters and operations in the two columns of the paper", "[models]") {
    using net = network<ls::models::alexnet_two_columns>;
    // A sum over layers: kernel x channels of a group x filters + filters, and the three dense layers.
    constexpr std::size_t convolutions =
        (363 * 96 + 96) + (25 * 48 * 256 + 256) + (9 * 256 * 384 + 384) + (9 * 192 * 384 + 384) + (9 * 192 * 256 + 256);
    constexpr std::size_t dense = (9216 * 4096 + 4096) + (4096 * 4096 + 4096) + (4096 * 1000 + 1000);
    CHECK(net::parameters == convolutions + dense);
    CHECK(net::parameters == 60'965'224);
    CHECK(std::is_same_v<net::layer<15>::input, ls::tensor::shape<6, 6, 256>>);
    constexpr double work =
        55.0 * 55 * 363 * 96 + 27.0 * 27 * 1200 * 256 + 13.0 * 13 * 9 * (256.0 * 384 + 192 * 384 + 192 * 256);
    CHECK(weight_flops<net>() == 2 * (work + 9216.0 * 4096 + 4096 * 4096 + 4096 * 1000));
}
