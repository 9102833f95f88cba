// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/global_top_k.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/global_top_k: a worker sends what top_k with error feedback sends", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>()) {
        channel<T, error_feedback<top_k>> local{error_feedback{top_k{.ratio = 0.1}}, n};
        channel<T, global_top_k> one{global_top_k{.ratio = 0.1}, n};
        CHECK(one.scratch.size() == local.scratch.size());
        for (std::uint32_t step = 0; step < 3; ++step) {
            const auto values = normals<T>(n, 7, step);
            const auto message = one.encode(values);
            CHECK(std::ranges::equal(message, local.encode(values)));
            CHECK(one.decode(message) == local.decode(message));
        }
    }
}

TEST_CASE("compress/global_top_k: statistics are those of top_k in error feedback, and change no bit", "[compress]") {
    statistics seen{1}, expected{1};
    constexpr std::size_t n = 1000;
    channel<float, error_feedback<measured<top_k>>> local{error_feedback{measured{top_k{.ratio = 0.1}, &expected}}, n};
    channel<float, global_top_k> quiet{global_top_k{.ratio = 0.1}, n};
    channel<float, global_top_k> one{global_top_k{.ratio = 0.1, .statistics = &seen}, n};
    for (std::uint32_t step = 0; step < 3; ++step) {
        const auto values = normals<float>(n, 11, step);
        (void)local.encode(values);
        const auto sent = one.encode(values);
        CHECK(std::ranges::equal(sent, quiet.encode(values)));
    }
    CHECK(seen.total().messages == 3);
    CHECK(seen.total().bytes == expected.total().bytes);
    CHECK(seen.total().squares == expected.total().squares);
    CHECK(seen.total().lost == expected.total().lost);
    CHECK(seen.total().relative_error() > 0.1);
}

TEST_CASE("compress/global_top_k: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(global_top_k{}.check());
    CHECK_NOTHROW(global_top_k{.ratio = 1}.check());
    CHECK_THROWS_WITH(
        global_top_k{.ratio = 0}.check(),
        "lockstep: global_top_k has ratio = 0, outside (0, 1]; take the share of elements to send, such as 0.01");
    CHECK_THROWS_AS(global_top_k{.ratio = 1.01}.check(), core::error);
    CHECK_THROWS_AS(global_top_k{.ratio = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
    CHECK_THROWS_WITH(error_feedback{global_top_k{}}.check(),
                      "lockstep: error_feedback around global_top_k would keep a second residual of what it keeps "
                      "itself; use global_top_k alone");
    CHECK(global_top_k{.ratio = 0.25}.settings() == "ratio=0.25");
    STATIC_REQUIRE(StreamCompressor<error_feedback<global_top_k>, float>);
    STATIC_REQUIRE(traits_of<global_top_k>.dense_vectors);
}
