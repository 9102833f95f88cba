// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/choose.hpp"

#include <catch2/catch.hpp>

#include "lockstep/compress/none.hpp"
#include "lockstep/compress/top_k.hpp"

namespace ls = lockstep;
using ls::reduce::reducer_for;

TEST_CASE("reduce/choose: messages that may be added go over the lane tree, others are gathered", "[reduce]") {
    STATIC_REQUIRE(std::is_same_v<reducer_for<float, ls::compress::none>, ls::reduce::tree_sum<float>>);
    STATIC_REQUIRE(std::is_same_v<reducer_for<float, ls::compress::top_k>, ls::reduce::gathered_messages<float, ls::compress::top_k>>);
    STATIC_REQUIRE(ls::reduce::keeps_lane_order<double, ls::compress::none> && !ls::reduce::keeps_lane_order<double, ls::compress::top_k>);
    STATIC_REQUIRE(ls::reduce::Reducer<ls::reduce::tree_sum<double>, double>);
    STATIC_REQUIRE(ls::reduce::Reducer<ls::reduce::gathered_messages<double, ls::compress::top_k>, double>);
}
