// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/cd_dnn.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/cd_dnn: parameters and operations of Seide et al. 2014", "[models]") {
    using net = network<ls::models::cd_dnn>;
    constexpr std::size_t weights = 429 * 2048 + 6 * 2048 * 2048 + 2048 * 9304;
    STATIC_REQUIRE(net::parameters == weights + 7 * 2048 + 9304 && net::parameters == 45'122'648);
    STATIC_REQUIRE(weight_flops<net>() == 2.0 * weights);  // 45.10 M multiply-adds for a frame
    STATIC_REQUIRE(std::is_same_v<net::output, ls::tensor::shape<9304>>);
}
