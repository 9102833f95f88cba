// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/half.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/half: workers' numbers and sums are rounded to 16 bits", "[compress]", half, bfloat16) {
    using number = typename TestType::template element<float>;
    STATIC_REQUIRE(sizeof(element_of<TestType, float, 0>) == 2);
    STATIC_REQUIRE(sizeof(element_of<error_feedback<TestType>, float, 0>) == 2);
    for (const std::size_t n : {0, 1, 15, 16, 17, 255, 256, 257, 1009}) {
        by_hand<float, TestType> sum{{}, {1, n}, 3};
        CHECK(sum.sizes.elements[0] == n);
        const auto values = normals<float>(3 * n, 7, 3);
        const auto mean = sum(values, 2);
        std::vector<float> own(n, 1.0F);
        sum.reduction.decode_own(sum.of(1, values, 2), std::span<const number>{sum.last}.subspan(n, n), 2.0F,
                                 std::span<float>{own});
        for (std::size_t i = 0; i < n; ++i) {
            // Workers that are added one after the other: a tree is that of reduce/rounds.
            const number expected = (number{} + number{values[i]} + number{values[n + i]}) + number{values[2 * n + i]};
            REQUIRE(mean[i] == static_cast<float>(expected));
            REQUIRE(own[i] == 1.0F + 2.0F * static_cast<float>(number{values[n + i]}));
        }
    }
}

TEMPLATE_TEST_CASE("compress/half: word i decides number i, and the mean over steps is the number", "[compress]", half,
                   bfloat16) {
    using number = typename TestType::template element<float>;
    constexpr std::size_t n = 300;
    constexpr std::uint32_t draws = 4000;
    by_hand<float, TestType> sum{{.stochastic = true}, {1, n}, 1};
    const auto values = normals<float>(n, 9);
    std::vector<double> mean(n);
    for (std::uint32_t step = 0; step < draws; ++step) {
        const auto sent = sum(values, step);
        const auto random = sum.of(0, values, step).random;
        for (std::size_t i = 0; i < n; ++i) {
            if (step < 3) REQUIRE(sent[i] == static_cast<float>(number{values[i], random.word(i)}));
            mean[i] += (static_cast<double>(sent[i]) - static_cast<double>(values[i])) / draws;
        }
    }
    std::size_t nearest_fails = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double error = std::abs(static_cast<double>(static_cast<float>(number{values[i]}) - values[i]));
        const double step = std::abs(static_cast<double>(static_cast<float>(number{values[i], 0}) -
                                                         static_cast<float>(number{values[i], 0xffffffffU})));
        // The variance of one error is at most step^2 / 4: six standard deviations.
        const double bound = 6 * step / 2 / std::sqrt(draws);
        REQUIRE(std::abs(mean[i]) <= bound);
        nearest_fails += error > bound ? 1 : 0;
    }
    CHECK(nearest_fails > n / 2);  // the bound has teeth
}

TEMPLATE_TEST_CASE("compress/half: with error feedback sent + residual is p, bit for bit", "[compress]", half,
                   bfloat16) {
    using number = typename TestType::template element<float>;
    constexpr std::size_t n = 500;
    for (const bool stochastic : {false, true}) {
        by_hand<float, error_feedback<TestType>> sum{{{.stochastic = stochastic}}, {1, n}, 2};
        std::vector<float> residual(2 * n);
        for (std::uint32_t step = 0; step < 4; ++step) {
            const auto values = normals<float>(2 * n, 20 + step, 5);
            sum(values, step);
            for (std::size_t i = 0; i < 2 * n; ++i) {
                const float p = values[i] + residual[i];
                residual[i] = sum.state[i];
                REQUIRE(is_exact_sum(static_cast<float>(number{sum.last[i]}), residual[i], p));
            }
        }
    }
}

TEMPLATE_TEST_CASE("compress/half: double is rounded once, and what overflows is infinite", "[compress]", half,
                   bfloat16) {
    by_hand<double, TestType> sum{{}, {1, 3}, 1};
    const double tie = std::is_same_v<TestType, half> ? 1 + 0x1p-11 : 1 + 0x1p-8;
    const std::vector<double> values{tie * (1 + 0x1p-40), tie, tie * (1 - 0x1p-40)};
    const auto sent = sum(values, 0);
    CHECK(sent[0] > 1);
    CHECK(sent[1] == 1);
    CHECK(sent[2] == 1);
    by_hand<float, TestType> large{{}, {1, 4}, 1};
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const auto bad = large(std::vector<float>{std::numeric_limits<float>::max(), -inf, nan, 0}, 0);
    CHECK(bad[0] == inf);
    CHECK(bad[1] == -inf);
    CHECK(std::isnan(bad[2]));
    CHECK(bad[3] == 0);
}

TEST_CASE("compress/half: names and settings", "[compress]") {
    CHECK(half::name == "half");
    CHECK(compress::bfloat16::name == "bfloat16");
    CHECK(half{.stochastic = true}.settings() == "stochastic=true");
}
