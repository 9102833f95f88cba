// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/any.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

struct five_slots : none {
    static constexpr std::string_view name = "five_slots";
    static constexpr std::size_t slot_count = 5;
};

/// The same messages, state and numbers in some steps.
template <class T, class C>
void is_the_same(const C& inner) {
    INFO(detail::describe(inner));
    const std::size_t n = 1009;
    channel<T, C> bare{inner, n};
    channel<T, any> held{any{inner}, n};
    CHECK(held.most == bare.most);
    CHECK(held.slots.size() == bare.slots.size());
    CHECK(held.scratch.size() == bare.scratch.size());
    CHECK(changes_of(held.compressor) == changes_of(inner));
    for (const matrix shape : {matrix{1, 1009}, matrix{1009, 3}})
        CHECK(is_dense(held.compressor, shape) == is_dense(inner, shape));
    CHECK(sees_whole_tensors(held.compressor) == sees_whole_tensors(inner));
    CHECK(held.compressor.settings() == detail::describe(inner));
    for (std::uint32_t step = 0; step < 4; ++step) {
        const auto values = normals<T>(n, step);
        bare.step = held.step = step;
        bare.from = held.from = {.tensor = 3, .rows = 1009, .columns = 5, .window = step % 2};
        const core::random_stream random{5, core::purpose::rounding, 0, step};
        const auto one = bare.encode(values, random), other = held.encode(values, random);
        CHECK(std::equal(one.begin(), one.end(), other.begin(), other.end()));
        CHECK(held.decode(other) == bare.decode(one));
        CHECK(held.slots == bare.slots);
        CHECK(max_bytes_at<T>(held.compressor, n, step, bare.from) == max_bytes_at<T>(inner, n, step, bare.from));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("compress/any: says what it holds says", "[compress]", float, double) {
    using T = TestType;
    is_the_same<T>(none{});
    is_the_same<T>(top_k{.ratio = 0.05});
    is_the_same<T>(error_feedback{quantize{.bits = 3}});
    is_the_same<T>(error_feedback{chain{top_k{.ratio = 0.1}, quantize{}}});
    is_the_same<T>(by_layer{error_feedback{top_k{}}, quantize{}});
    is_the_same<T>(error_feedback{warm_up<top_k>{.each = 1, .start = 1}});
}

TEST_CASE("compress/any: copies, and passes on what check says", "[compress]") {
    any chosen;
    CHECK(chosen.settings() == "none");
    const any other{top_k{.ratio = 0}};
    CHECK(chosen.max_bytes<float>(100) == 400);
    chosen = other;
    CHECK(chosen.settings() == "top_k(ratio=0)");
    CHECK_THROWS_WITH(chosen.check(), Catch::Contains("top_k has ratio = 0"));
    CHECK_THROWS_AS(error_feedback{any{quantize{.bits = 2}}}.check(), core::error);
    CHECK_THROWS_WITH(any{five_slots{}},
                      "lockstep: compress::any has room for 4 slots, and five_slots has 5; name its type in the plan");
}

TEST_CASE("compress/any: what compresses the sum is refused inside another combinator, and in it once", "[compress]") {
    const any both_ways{two_sided{error_feedback{one_bit{}}}}, one_way{error_feedback{one_bit{}}};
    CHECK(seals(both_ways));
    CHECK_FALSE(seals(one_way));
    CHECK(seals(any{two_sided{one_bit{}}}));  // keeps nothing from step to step
    CHECK_NOTHROW(both_ways.check());
    const auto refused = [](const auto& around, const std::string& name) {
        CHECK_THROWS_WITH(around.check(), Catch::StartsWith("lockstep: " + name + " goes around any(two_sided(") &&
                                              Catch::EndsWith("write two_sided once, around all other combinators"));
        CHECK_THROWS_AS(any{around}.check(), core::error);
        CHECK_THROWS_AS((measured{around, nullptr}.check()), core::error);
    };
    refused(error_feedback{both_ways}, "error_feedback");
    refused(two_sided{both_ways}, "two_sided");
    refused(by_layer{both_ways}, "by_layer");
    refused(by_layer{top_k{}, both_ways}, "by_layer");
    refused(by_layer{top_k{}, top_k{}, both_ways}, "by_layer");
    refused(warm_up<any>{both_ways}, "warm_up");
    refused(warm_up<top_k, any>{.first = both_ways}, "warm_up");
    CHECK_NOTHROW(error_feedback{any{top_k{}}}.check());
    CHECK_NOTHROW(two_sided{one_way}.check());
    CHECK_NOTHROW((by_layer{one_way, one_way}.check()));
    CHECK_NOTHROW(warm_up<any>{one_way}.check());
}

TEMPLATE_TEST_CASE("compress/any: the sum is compressed through measured as well, with the same state", "[compress]",
                   float, double) {
    using T = TestType;
    const std::size_t n = 1009;
    const two_sided bare{error_feedback{quantize{.bits = 4}}};
    statistics seen{1};
    const any held{measured{measured{bare, nullptr}, &seen}};
    const any nested{measured{any{bare}, nullptr}};
    REQUIRE(shared_slots_of(held) == 1);
    REQUIRE(shared_slots_of(nested) == 1);
    CHECK(seals(nested));
    CHECK_FALSE(has_seal<measured<quantize>, T>);
    const auto seal_twice = [&](const auto& one) {
        std::vector<T> state(n), sum, all;
        for (std::uint32_t step = 0; step < 2; ++step) {
            sum = normals<T>(n, step);
            std::vector<T> scratch(scratch_size<T>(one, n)), message(max_bytes_at<T>(one, n, step, {}) / sizeof(T) + 2);
            one.seal(sealing<T>{.sum = sum,
                                .state = {state.data(), 1, n, n},
                                .message = std::as_writable_bytes(std::span{message}),
                                .scratch = scratch,
                                .step = step});
            all.insert(all.end(), sum.begin(), sum.end());
            all.insert(all.end(), state.begin(), state.end());
        }
        return all;
    };
    const auto expected = seal_twice(bare);
    CHECK(seal_twice(held) == expected);
    CHECK(seal_twice(nested) == expected);
    CHECK(std::vector<T>(expected.begin(), expected.begin() + 1009) != normals<T>(n, 0));
    CHECK(seen.total().messages == 0);  // nothing was sent
}
