// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/lenet5.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/lenet5: parameters and operations", "[models]") {
    using net = network<ls::models::lenet5>;
    STATIC_REQUIRE(net::parameters == (25 + 1) * 6 + (150 + 1) * 16 + (400 + 1) * 120 + (120 + 1) * 84 + (84 + 1) * 10);
    STATIC_REQUIRE(net::parameters == 61'706);
    STATIC_REQUIRE(network<ls::models::lenet5_layer_by_layer>::parameters == net::parameters);
    STATIC_REQUIRE(weight_flops<network<ls::models::lenet5_layer_by_layer>>() == weight_flops<net>());
    STATIC_REQUIRE(net::training_flops < network<ls::models::lenet5_layer_by_layer>::training_flops);
    STATIC_REQUIRE(weight_flops<net>() ==
                   2.0 * (28 * 28 * 25 * 6 + 10 * 10 * 150 * 16 + 400 * 120 + 120 * 84 + 84 * 10));
}
