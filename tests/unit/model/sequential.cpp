// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/sequential.hpp"

#include <catch2/catch.hpp>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"

namespace ls = lockstep;

TEST_CASE("model/sequential: a network is its list of layers, with the numbers in them", "[model]") {
    constexpr auto net = ls::sequential{ls::input<12>, ls::layers::dense<8>{}, ls::layers::dropout{.rate = 0.25}, ls::layers::relu{}};
    using type = std::remove_const_t<decltype(net)>;
    static_assert(type::size == 3);
    static_assert(std::is_same_v<type::input, ls::tensor::shape<12>>);
    static_assert(std::is_same_v<type::spec<0>, ls::layers::dense<8>> && std::is_same_v<type::spec<1>, ls::layers::dropout>);
    static_assert(ls::core::get<1>(net.specs).rate == 0.25);
    static_assert(std::is_same_v<std::remove_const_t<decltype(ls::input<28, 28, 1>)>, ls::tensor::shape<28, 28, 1>>);
    SUCCEED();
}
