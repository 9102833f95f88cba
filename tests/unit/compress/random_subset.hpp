// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What random_k and random_block have in common: sums of the same elements of all workers.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "support.hpp"

namespace lockstep::compress::testing {

/// The elements that are drawn in a step, as ones.
template <class R>
std::vector<float> drawn(const R& reduction, std::size_t n, std::uint32_t step) {
    by_hand<float, R> sum{reduction, {1, n}, 1};
    return sum(std::vector<float>(n, 1.0F), step);
}

template <class T, class R>
void sends_k_of_each_vector(const R& reduction) {
    for (const std::size_t n : sizes<T>()) {
        const std::size_t k = share_of(reduction.ratio, n);
        by_hand<T, R> sum{reduction, {1, n}, 3};
        INFO(n << " values");
        CHECK(sum.sizes.elements[0] == k);
        CHECK(sum.sizes.shared + sum.sizes.kept + R::slot_count == 0);
        // Whole numbers, so that sums are exact.
        std::vector<T> values(3 * n), total(n);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<T>(static_cast<int>(i * 7 % 31) + 1);
            total[i % std::max<std::size_t>(n, 1)] += values[i];
        }
        const auto mean = sum(values, 4);
        std::size_t count = 0;
        std::vector<T> own(n);
        for (std::size_t worker = 0; worker < 3; ++worker)
            reduction.decode_own(sum.of(worker, values, 4), std::span<const T>{sum.last}.subspan(worker * k, k), T{1},
                                 std::span<T>{own});
        for (std::size_t i = 0; i < n; ++i) {
            count += mean[i] != 0;
            if (mean[i] != 0) CHECK(mean[i] == total[i]);
        }
        CHECK(count == k);
        CHECK(own == mean);
    }
}

/// The sum of what is decoded of the workers is what is decoded of the sum.
template <class T, class R>
void is_linear(const R& reduction) {
    // 51 of them are sent; ten times a whole number is one, too.
    const std::size_t n = 510;
    std::vector<T> values(4 * n), total(n), parts(n);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<T>(static_cast<int>(i * 37 % 101) - 50);
        total[i % n] += values[i];
    }
    const auto of = [&](std::span<const T> some, std::size_t workers) {
        by_hand<T, R> sum{reduction, {1, n}, workers};
        return sum(some, 11);
    };
    for (std::size_t worker = 0; worker < 4; ++worker) {
        const auto one = of(std::span<const T>{values}.subspan(worker * n, n), 1);
        for (std::size_t i = 0; i < n; ++i) parts[i] += one[i];
    }
    CHECK(of(values, 4) == of(total, 1));
    CHECK(of(values, 4) == parts);
}

/// Each element has the chance that the docstring says, and what is left out the expectation (1 - k/n) |v|^2. For
/// `draws` independent steps the frequency of an element has the standard deviation sqrt(c (1 - c) / draws); six of
/// these.
template <class R>
void draws_evenly(const R& reduction, std::size_t n, const auto& chance) {
    constexpr std::uint32_t draws = 4000;
    std::vector<std::uint32_t> counts(n);
    const auto values = normals<float>(n, 3);
    double left_out = 0;
    for (std::uint32_t step = 0; step < draws; ++step) {
        const auto ones = drawn(reduction, n, step);
        for (std::size_t i = 0; i < n; ++i) {
            counts[i] += ones[i] != 0;
            if (ones[i] == 0) left_out += static_cast<double>(values[i]) * static_cast<double>(values[i]) / draws;
        }
    }
    double expected = 0, spread = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double c = chance(i);
        const double bound = 6 * std::sqrt(c * (1 - c) / draws);
        CHECK(std::abs(static_cast<double>(counts[i]) / draws - c) <= bound);
        const double square = static_cast<double>(values[i]) * static_cast<double>(values[i]);
        expected += (1 - c) * square;
        spread += square;
    }
    // A step leaves out at most all of it, so its standard deviation is at most half of that.
    CHECK(std::abs(left_out - expected) <= 6 * spread / 2 / std::sqrt(double{draws}));
}

/// The mean over draws is the vector: six standard deviations of a mean of `draws` independent numbers that are v times
/// `chances` with the chance 1 / `chances`, else 0.
template <class R>
void is_unbiased(const R& reduction, std::size_t n, double largest_chances) {
    constexpr std::uint32_t draws = 4000;
    const auto values = normals<float>(n, 6);
    std::vector<double> mean(n);
    for (std::uint32_t step = 0; step < draws; ++step) {
        by_hand<float, R> sum{reduction, {1, n}, 1};
        const auto one = sum(values, step);
        for (std::size_t i = 0; i < n; ++i) mean[i] += static_cast<double>(one[i]) / draws;
    }
    for (std::size_t i = 0; i < n; ++i) {
        const double v = std::abs(static_cast<double>(values[i]));
        CHECK(std::abs(mean[i] - static_cast<double>(values[i])) <= 6 * v * std::sqrt((largest_chances - 1) / draws));
    }
}

/// error_feedback around it: sent + residual = gradient + old residual.
template <class T, class R>
void loses_nothing_in_sums(const R& reduction) {
    const std::size_t n = 257;
    using wrapped = error_feedback<R>;
    by_hand<T, wrapped> sum{wrapped{reduction}, {1, n}, 2};
    for (std::uint32_t step = 0; step < 30; ++step) {
        std::vector<T> values = normals<T>(2 * n, step, 3), p(2 * n);
        for (std::size_t i = 0; i < 2 * n; ++i) p[i] = values[i] + sum.state[i];
        const auto mean = sum(values, step);
        for (std::size_t i = 0; i < n; ++i) {
            const bool sent = sum.state[i] == 0 && p[i] != 0;
            REQUIRE(sum.state[i] == (sent ? T{0} : p[i]));
            REQUIRE(sum.state[n + i] == (sent ? T{0} : p[n + i]));
            REQUIRE(mean[i] == (sent ? p[i] + p[n + i] : T{0}));
        }
    }
}

template <class R>
void checks_its_settings() {
    CHECK_NOTHROW(R{}.check());
    CHECK_THROWS_WITH(R{.ratio = 0}.check(), Catch::Contains(" has ratio = 0, outside (0, 1]"));
    CHECK_THROWS_AS(R{.ratio = 1.5}.check(), core::error);
    CHECK_THROWS_AS(R{.ratio = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
    CHECK_NOTHROW(error_feedback<R>{R{}}.check());
    CHECK_THROWS_WITH((error_feedback<R>{R{.unbiased = true}}.check()),
                      Catch::Contains("with .unbiased = true would send more than there is; leave unbiased out"));
    CHECK(R{.ratio = 0.5}.settings() == "ratio=0.5 unbiased=false");
}

}  // namespace lockstep::compress::testing
