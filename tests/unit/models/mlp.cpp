// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/mlp.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/mlp: parameters and operations", "[models]") {
    using net = network<ls::models::mlp>;
    STATIC_REQUIRE(net::parameters == 1'863'690);
    STATIC_REQUIRE(weight_flops<net>() == 2.0 * (784 * 1024 + 1024 * 1024 + 1024 * 10));
}
