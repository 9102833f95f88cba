// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/sequential.hpp"

#include <catch2/catch.hpp>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"

namespace ls = lockstep;

TEST_CASE("model/sequential: a network is its list of layers, with the numbers in them", "[model]") {
    constexpr auto net =
        ls::sequential{ls::input<12>, ls::layers::dense<8>{}, ls::layers::dropout{.rate = 0.25}, ls::layers::relu{}};
    using type = std::remove_const_t<decltype(net)>;
    STATIC_REQUIRE(type::size == 3);
    STATIC_REQUIRE(std::is_same_v<type::input, ls::tensor::shape<12>>);
    STATIC_REQUIRE(std::is_same_v<type::spec<0>, ls::layers::dense<8>> &&
                   std::is_same_v<type::spec<1>, ls::layers::dropout>);
    STATIC_REQUIRE(ls::core::get<1>(net.specs).rate == 0.25);
    STATIC_REQUIRE(std::is_same_v<std::remove_const_t<decltype(ls::input<28, 28, 1>)>, ls::tensor::shape<28, 28, 1>>);
}
