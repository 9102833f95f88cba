// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/overfeat_fast.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/overfeat_fast: parameters and operations", "[models]") {
    using net = network<ls::models::overfeat_fast>;
    STATIC_REQUIRE(net::parameters == 145'920'872);
    constexpr double convolutions =
        56.0 * 56 * 121 * 3 * 96 + 24.0 * 24 * 25 * 96 * 256 + 12.0 * 12 * 9 * (256.0 * 512 + 512 * 1024 + 1024 * 1024);
    constexpr double dense = 36864.0 * 3072 + 3072 * 4096 + 4096 * 1000;
    STATIC_REQUIRE(weight_flops<net>() == 2 * (convolutions + dense));
    STATIC_REQUIRE(weight_flops<net>() > 5.595e9 && weight_flops<net>() < 5.605e9);  // 5.60 GFLOP forward
}
