// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/sparse_sum.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/parts/index_list.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEST_CASE("compress/sparse_sum: goes around lists, inside or around error feedback", "[compress]") {
    STATIC_REQUIRE(sends_index_list<top_k>);
    STATIC_REQUIRE(sends_index_list<error_feedback<top_k>>);
    STATIC_REQUIRE(sends_index_list<threshold>);
    STATIC_REQUIRE(sends_index_list<error_feedback<threshold>>);
    STATIC_REQUIRE(!sends_index_list<chain<top_k, quantize>>);
    STATIC_REQUIRE(sends_index_list<warm_up<top_k>> && sends_index_list<warm_up<top_k, threshold>>);
    STATIC_REQUIRE(sends_index_list<warm_up<measured<top_k>>> && sends_index_list<measured<warm_up<top_k>>>);
    STATIC_REQUIRE(!sends_index_list<warm_up<quantize>> && !sends_index_list<warm_up<top_k, quantize>>);
    STATIC_REQUIRE(!sends_index_list<quantize>);
    STATIC_REQUIRE(!sends_index_list<error_feedback<quantize>>);
    STATIC_REQUIRE(StreamCompressor<sparse_sum<error_feedback<top_k>, quantize>, float>);
    STATIC_REQUIRE(StreamCompressor<error_feedback<sparse_sum<top_k, quantize>>, float>);
    STATIC_REQUIRE(!StreamCompressor<error_feedback<top_k>, float>);
    // Around it nothing but error feedback, which would gather.
    STATIC_REQUIRE(hides_streams<warm_up<sparse_sum<top_k>>>);
    STATIC_REQUIRE(hides_streams<error_feedback<warm_up<error_feedback<sparse_sum<top_k>>>>>);
    STATIC_REQUIRE(!hides_streams<error_feedback<sparse_sum<top_k>>>);
    STATIC_REQUIRE(!hides_streams<error_feedback<warm_up<top_k>>>);
    STATIC_REQUIRE(!hides_streams<top_k>);
    STATIC_REQUIRE(sparse_sum<error_feedback<top_k>>::slot_count == 1);
    STATIC_REQUIRE(traits_of<sparse_sum<top_k>>.dense_vectors);
    constexpr error_feedback around{sparse_sum{top_k{}, quantize{.bits = 8}, sparse_algorithm::split_all_gather}};
    STATIC_REQUIRE(stream_settings_of(around).algorithm == sparse_algorithm::split_all_gather);
    STATIC_REQUIRE(second_half_of(around).bits == 8);
    constexpr sparse_sum named{.inner = top_k{}, .algorithm = sparse_algorithm::recursive_doubling};
    STATIC_REQUIRE(std::is_same_v<decltype(named), const sparse_sum<top_k>>);
}

TEMPLATE_TEST_CASE("compress/sparse_sum: its messages are those of the compressor inside", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>()) {
        channel<T, top_k> bare{top_k{.ratio = 0.1}, n};
        channel<T, sparse_sum<top_k>> wrapped{sparse_sum{top_k{.ratio = 0.1}}, n};
        const auto values = normals<T>(n, 7, 3);
        const auto message = wrapped.encode(values);
        CHECK(std::ranges::equal(message, bare.encode(values)));
        CHECK(wrapped.decode(message) == bare.decode(message));
        // Read as a list.
        const index_list<T> list{message};
        std::vector<T> found(n);
        for (std::size_t i = 0; i < list.size(); ++i) {
            found[list.index(i)] = list.value(i);
            if (i > 0) REQUIRE(list.index(i - 1) < list.index(i));
        }
        CHECK(found == bare.decode(message));
    }
}

TEST_CASE("compress/sparse_sum: the lists of a warm_up have room and are read at every stage", "[compress]") {
    const std::size_t n = 1000;
    const sparse_sum of{error_feedback{measured<warm_up<top_k>>{{top_k{.ratio = 0.01}, 2, 3}}}};
    const list_room room = list_room_of<float>(of, n);
    CHECK(room.most == n);  // all numbers, before `start`
    CHECK(room.usual == 10);
    CHECK(list_room_of<float>(warm_up{top_k{.ratio = 0.01}, 2}, n).most == 250);
    CHECK(list_room_of<float>(warm_up{top_k{.ratio = 0.01}}, n).most == 10);
    CHECK(list_room_of<float>(warm_up<top_k, threshold>{.inner = {.ratio = 0.01}, .start = 1}, n).most == 100);
    CHECK(list_room_of<double>(top_k{.ratio = 0.02}, n).most == 20);
    const warm_up<warm_up<top_k>> twice{.inner = {.inner = {.ratio = 0.01}, .each = 5}, .start = 1};
    CHECK(list_room_of<float>(twice, n).most == n);
    CHECK(list_room_of<float>(twice, n).usual == 10);

    channel<float, std::remove_const_t<decltype(of)>> wrapped{of, n};
    for (const int expected : {1000, 1000, 1000, 250, 250, 63, 63, 15, 15, 10, 10, 10}) {
        const auto message = wrapped.encode(normals<float>(n, wrapped.step));
        ++wrapped.step;
        const index_list<float> list = list_in<float>(of, message);
        REQUIRE(list.size() == static_cast<std::size_t>(expected));
        std::vector<float> found(n);
        for (std::size_t i = 0; i < list.size(); ++i) {
            found[list.index(i)] = list.value(i);
            if (i > 0) REQUIRE(list.index(i - 1) < list.index(i));
        }
        CHECK(found == wrapped.decode(message));
    }
}

TEST_CASE("compress/sparse_sum: settings are those that decide bits", "[compress]") {
    const sparse_sum plain{top_k{.ratio = 0.25}};
    sparse_sum split = plain;
    split.algorithm = sparse_algorithm::split_all_gather;
    CHECK(plain.settings() == "inner=top_k(ratio=0.25) second=none()");
    CHECK(split.settings() == plain.settings());
    CHECK(sparse_sum{top_k{.ratio = 0.25}, quantize{}}.settings() ==
          "inner=top_k(ratio=0.25) second=quantize(bits=4 bucket=512 stochastic=true)");
    CHECK_THROWS_AS((sparse_sum{top_k{.ratio = 0}}.check()), core::error);
    CHECK_THROWS_AS((sparse_sum{top_k{.ratio = 2}}.check()), core::error);
    CHECK_THROWS_AS((sparse_sum{top_k{}, quantize{.bits = 33}}.check()), core::error);
    CHECK_THROWS_WITH((sparse_sum{top_k{}, quantize{.stochastic = false}}.check()),
                      "lockstep: the second half of a sparse_sum rounds to nearest, and no error feedback knows of it; "
                      "leave .stochastic = true, or leave the second half out");
    CHECK_NOTHROW((error_feedback{sparse_sum{top_k{}, quantize{}}}.check()));
}
