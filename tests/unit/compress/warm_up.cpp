// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/warm_up.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/parts/candidate.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/warm_up: dense, then the ratios of deep gradient compression, then its own", "[compress]",
                   float, double) {
    using T = TestType;
    const std::size_t n = 2000;
    const auto values = normals<T>(n, 3);
    const warm_up<top_k> growing{.inner = {.ratio = 0.001}, .each = 10, .start = 5};
    channel<T, warm_up<top_k>> one{growing, n};
    const auto sent = [&](std::uint64_t step) {
        one.step = step;
        const auto message = one.encode(values);
        CHECK(one.guard_holds());
        CHECK(message.size() == max_bytes_at<T>(growing, n, step, {}));
        const auto decoded = one.decode(message);
        const std::size_t k = n - static_cast<std::size_t>(std::count(decoded.begin(), decoded.end(), T{0}));
        CHECK(decoded == by_sorting(values, k));
        return std::pair{k, message.size()};
    };
    const std::size_t pair = sizeof(T) + 4;
    for (std::uint64_t step : {0, 4}) CHECK(sent(step) == std::pair{n, n * sizeof(T) + 1});
    for (std::uint64_t step : {5, 14}) CHECK(sent(step) == std::pair{std::size_t{500}, 500 * pair + 1});
    for (std::uint64_t step : {15, 24}) CHECK(sent(step) == std::pair{std::size_t{126}, 126 * pair + 1});
    for (std::uint64_t step : {25, 34}) CHECK(sent(step) == std::pair{std::size_t{30}, 30 * pair + 1});
    for (std::uint64_t step : {35, 44}) CHECK(sent(step) == std::pair{std::size_t{8}, 8 * pair + 1});
    for (std::uint64_t step : {45, 1'000'000}) CHECK(sent(step) == std::pair{std::size_t{2}, 2 * pair + 1});
    CHECK(changes_of(growing) == std::vector<std::uint64_t>{5, 15, 25, 35, 45});
    CHECK(changes_of(warm_up<top_k>{.each = 10}) == std::vector<std::uint64_t>{10, 20, 30, 40});
    CHECK(changes_of(warm_up<top_k>{.start = 7}) == std::vector<std::uint64_t>{7});
    CHECK(growing.template max_bytes<T>(n) == std::max(n * sizeof(T), 500 * pair) + 1);
}

TEST_CASE("compress/warm_up: whole tensors where its compressor takes them", "[compress]") {
    CHECK(sees_whole_tensors(error_feedback{warm_up<one_bit>{.start = 2}}));
    CHECK(!sees_whole_tensors(warm_up<one_bit>{.inner = {.by_column = false}}));
    CHECK(sees_whole_tensors(warm_up<any>{.inner = one_bit{}}));
    CHECK_NOTHROW((warm_up<one_bit, one_bit>{.start = 2}.check()));
    CHECK_THROWS_WITH(
        (warm_up<quantize, one_bit>{.start = 2}.check()),
        "lockstep: warm_up begins with one_bit(by_column=true), which takes whole tensors, before "
        "quantize(bits=4 bucket=512 stochastic=true), which takes segments; leave .first out, or use two of "
        "a kind");
}

TEST_CASE("compress/warm_up: through chain, and around what has no ratio", "[compress]") {
    const warm_up<chain<top_k, quantize>> growing{.inner = {top_k{.ratio = 0.001}}, .each = 1};
    CHECK(max_bytes_at<float>(growing, 1000, 0, {}) ==
          chain{top_k{.ratio = 0.25}, quantize{}}.max_bytes<float>(1000) + 1);
    CHECK(max_bytes_at<float>(growing, 1000, 4, {}) ==
          chain{top_k{.ratio = 0.001}, quantize{}}.max_bytes<float>(1000) + 1);
    // The ratio of what error feedback is around.
    const warm_up inside{error_feedback{top_k{.ratio = 0.001}}, 1};
    CHECK_NOTHROW(inside.check());
    for (std::uint64_t step = 0; step < 5; ++step)
        CHECK(max_bytes_at<float>(inside, 1000, step, {}) ==
              max_bytes_at<float>(warm_up{top_k{.ratio = 0.001}, 1}, 1000, step, {}));
    const warm_up<quantize> later{.start = 3};
    CHECK_NOTHROW(later.check());
    CHECK(max_bytes_at<float>(later, 1000, 2, {}) == 4001);
    CHECK(max_bytes_at<float>(later, 1000, 3, {}) == 509);
    CHECK_THROWS_WITH((warm_up<quantize>{.each = 4}.check()),
                      "lockstep: warm_up has each = 4 for quantize, which has no ratio; leave it out, and give the "
                      "steps before it as "
                      ".start");
    CHECK_THROWS_WITH((warm_up<top_k>{.ratios = {0.5, 0, 0.1, 0.1}}.check()),
                      Catch::Contains("warm_up has a ratio of 0"));
    CHECK_THROWS_WITH((warm_up<top_k>{.each = 9, .ratios = {0.25, 0.063, 0.1, 0.004}}.check()),
                      "lockstep: warm_up has a ratio of 0.1 after one of 0.063; give ratios that fall, such as 0.25, "
                      "0.063, 0.015, 0.004");
    // Of a compressor that sends more than a ratio says, each stage sends as much.
    const warm_up<top_k> weak{.inner = {.ratio = 0.05}, .each = 1};
    CHECK_NOTHROW(weak.check());
    for (std::uint64_t step = 0; step < 5; ++step)
        CHECK(max_bytes_at<float>(weak, 1000, step, {}) ==
              top_k{.ratio = std::array{0.25, 0.063, 0.05, 0.05, 0.05}[step]}.max_bytes<float>(1000) + 1);
    const warm_up<chain<top_k, quantize>> weak_chain{.inner = {top_k{.ratio = 0.1}}, .each = 1};
    CHECK(max_bytes_at<float>(weak_chain, 1000, 2, {}) ==
          chain{top_k{.ratio = 0.1}, quantize{}}.max_bytes<float>(1000) + 1);
    CHECK_THROWS_WITH((warm_up<top_k>{.inner = {.ratio = 3}}.check()), Catch::Contains("top_k has ratio = 3"));
    CHECK_THROWS_AS((warm_up<top_k>{.each = ~std::uint64_t{0} / 3}.check()), core::error);
    CHECK(error_feedback{warm_up<top_k>{.inner = {.ratio = 0.001}, .each = 10, .start = 5}}.settings() ==
          "inner=warm_up(inner=top_k(ratio=0.001) each=10 ratios=0.25,0.063,0.015,0.004 start=5 first=none)");
}

TEST_CASE("compress/warm_up: a reduction begins later", "[compress]") {
    constexpr warm_up later{.inner = power_sgd{.rank = 2}, .start = 1000};
    STATIC_REQUIRE(Reduction<warm_up<power_sgd>> && !Compressor<warm_up<power_sgd>>);
    CHECK(plain_steps(power_sgd{}) == 0);
    CHECK(plain_steps(later) == 1000);
    CHECK(plain_steps(error_feedback{later}) == 1000);
    CHECK(plain_steps(warm_up{.inner = error_feedback{later}, .start = 3}) == 1000);
    CHECK(plain_steps(measured{later, nullptr}) == 1000);
    CHECK(plain_steps(any_reduction<algebra::ordered_sum, algebra::ordered_sum>{later}) == 1000);
    CHECK(later.settings() == "inner=power_sgd(rank=2) start=1000");
    CHECK_NOTHROW(error_feedback{later}.check());
    CHECK_THROWS_WITH((warm_up{power_sgd{}, 100}.check()),
                      "lockstep: warm_up has each = 100 for power_sgd, whose messages have one size; leave it out, and "
                      "give the steps before it as .start");
    CHECK_THROWS_WITH((warm_up{.inner = power_sgd{.rank = 0}}.check()), Catch::Contains("power_sgd"));
    CHECK_THROWS_AS((error_feedback{warm_up{.inner = error_feedback{power_sgd{}}, .start = 2}}.check()), core::error);
    CHECK_THROWS_WITH(candidate{later}.check(), Catch::Contains("begins with all numbers; leave warm_up out"));
}

TEST_CASE("compress/warm_up: what begins is deduced", "[compress]") {
    constexpr warm_up dense{.inner = top_k{}, .each = 5}, positional{top_k{}, 5};
    STATIC_REQUIRE(std::is_same_v<decltype(dense), const warm_up<top_k>>);
    STATIC_REQUIRE(std::is_same_v<decltype(positional), const warm_up<top_k>>);
    constexpr warm_up coarse{.inner = top_k{}, .start = 5, .first = quantize{.bits = 4}};
    STATIC_REQUIRE(std::is_same_v<decltype(coarse), const warm_up<top_k, quantize>>);
    CHECK(coarse.first.bits == 4);
}
