// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/choose.hpp"

#include <catch2/catch.hpp>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/top_k.hpp"

namespace ls = lockstep;
using ls::reduce::method;

TEST_CASE("reduce/choose: without a compressor sums go over the lane tree, messages of a compressor are gathered",
          "[reduce]") {
    STATIC_REQUIRE(std::is_same_v<method<float, ls::compress::none>::reducer, ls::reduce::tree_sum<float>>);
    STATIC_REQUIRE(std::is_same_v<method<float, ls::compress::top_k>::reducer,
                                  ls::reduce::gathered_messages<float, ls::compress::top_k>>);
    STATIC_REQUIRE(!method<double, ls::compress::none>::has_workers &&
                   method<double, ls::compress::top_k>::has_workers);
    STATIC_REQUIRE(ls::reduce::Reducer<ls::reduce::tree_sum<double>, double>);
    STATIC_REQUIRE(ls::reduce::Reducer<ls::reduce::gathered_messages<double, ls::compress::top_k>, double>);
}

TEST_CASE("reduce/choose: a reduction runs in rounds, also inside error feedback", "[reduce]") {
    using ls::compress::terngrad;
    using feedback = ls::compress::error_feedback<ls::compress::power_sgd>;
    STATIC_REQUIRE(std::is_same_v<method<float, terngrad>::reducer, ls::reduce::rounds<float, terngrad>>);
    STATIC_REQUIRE(std::is_same_v<method<double, feedback>::reducer, ls::reduce::rounds<double, feedback>>);
    STATIC_REQUIRE(method<float, terngrad>::has_workers && method<double, feedback>::has_workers);
    STATIC_REQUIRE(ls::reduce::Reducer<ls::reduce::rounds<double, feedback>, double>);
}
