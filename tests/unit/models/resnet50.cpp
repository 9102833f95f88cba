// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/resnet50.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/resnet50: parameters and operations", "[models]") {
    using net = network<ls::models::resnet50>;
    static_assert(net::parameters == 25'557'032);
    static_assert(std::is_same_v<net::layer<net::size - 2>::input, ls::tensor::shape<7, 7, 2048>>);
    static_assert(net::statistics == 2 * 26'560);
    // 4.09 G multiply-adds.
    static_assert(weight_flops<net>() > 2 * 4.085e9 && weight_flops<net>() < 2 * 4.095e9);
    CHECK(count<net>("conv") == 53);
    CHECK(count<net>("add") == 16);
}
