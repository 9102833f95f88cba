// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/terngrad.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "reference_reductions.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

/// Values of all workers, one after the other.
template <class T>
std::vector<T> values_of_workers(std::size_t n, std::size_t workers, std::uint64_t seed) {
    std::vector<T> out;
    for (std::size_t worker = 0; worker < workers; ++worker)
        for (const T value : normals<T>(n, seed + worker)) out.push_back(value);
    return out;
}

}  // namespace

TEST_CASE("compress/terngrad: scale, sums and a worker's own numbers are those of the formulas", "[compress]") {
    constexpr std::size_t n = 42;
    for (const auto& expected : {reference::clipped, reference::whole}) {
        INFO("clip " << expected.clip);
        by_hand<float, terngrad> sum{{.clip = expected.clip}, {6, 7}, reference::workers};
        std::vector<float> values(reference::workers * n);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = reference_number<float>(9 * values.size() + i);
        const auto mean = sum(values, 9);
        const auto scale = static_cast<float>(expected.scale);
        CHECK(sum.shared[0] == scale);
        std::vector<float> own(n);
        const std::size_t words = sum.sizes.elements[1];
        sum.reduction.decode_own(sum.of(1, values, 9), std::span<const std::uint32_t>{sum.last}.subspan(words, words),
                                 2.0F, std::span<float>{own});
        for (std::size_t worker = 0; worker < reference::workers; ++worker)
            CHECK(sum.kept[worker] == static_cast<float>(expected.largest[worker]));
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(mean[i] == scale * static_cast<float>(expected.sums[i]));
            CHECK(own[i] == 2 * (scale * static_cast<float>(expected.own[i])));
        }
    }
}

TEMPLATE_TEST_CASE("compress/terngrad: the expectation is the sum of the clipped values", "[compress]", float, double) {
    using T = TestType;
    constexpr std::size_t n = 60, workers = 3;
    constexpr std::uint32_t draws = 20'000;
    auto values = values_of_workers<T>(n, workers, 8);
    // Small ones too: a rule that rounds to nearest or at the wrong odds is far off for them.
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] *= T{0.01F};
    values[7] *= 9;
    by_hand<T, terngrad> sum{{}, {6, 10}, workers};
    std::vector<double> average(n), square(n);
    for (std::uint32_t draw = 0; draw < draws; ++draw) {
        const auto mean = sum(values, draw);
        for (std::size_t i = 0; i < n; ++i) {
            average[i] += static_cast<double>(mean[i]) / draws;
            square[i] += static_cast<double>(mean[i]) * static_cast<double>(mean[i]) / draws;
        }
    }
    const auto scale = static_cast<double>(sum.shared[0]);
    CHECK(static_cast<double>(std::abs(values[7])) > scale);  // something is clipped
    // Hoeffding: an average of N sums of W independent numbers from ranges of width s is off by more than s sqrt(W ln(2
    // / d) / 2N) with a probability of at most d; here 1e-9 for each of 60 comparisons. 2^-32 of s for each worker is
    // what rounding of probabilities may add.
    const double bound = scale * std::sqrt(workers * std::log(2 / 1e-9) / (2.0 * draws)) + workers * scale * 0x1p-31;
    double rounding_to_nearest = 0, variance = 0, expected_variance = 0;
    for (std::size_t i = 0; i < n; ++i) {
        double expected = 0, nearest = 0;
        for (std::size_t worker = 0; worker < workers; ++worker) {
            const auto most = static_cast<double>(sum.kept[worker]);
            const double u = std::clamp(static_cast<double>(values[worker * n + i]), -most, most);
            expected += u;
            nearest += scale * std::nearbyint(u / scale);
            expected_variance += std::abs(u) * (scale - std::abs(u));
        }
        CHECK(std::abs(average[i] - expected) <= bound);
        rounding_to_nearest = std::max(rounding_to_nearest, std::abs(nearest - expected) / bound);
        variance += square[i] - average[i] * average[i];
    }
    CHECK(rounding_to_nearest > 10);  // the bound has teeth
    // Workers and elements draw for themselves: variances add up. 1,200,000 draws of a bounded variable: 1 % is more
    // than five deviations.
    CHECK(std::abs(variance / expected_variance - 1) < 0.01);
}

TEMPLATE_TEST_CASE("compress/terngrad: the standard deviation is that of all values, whatever their number",
                   "[compress]", float, double) {
    using T = TestType;
    for (const std::size_t n : {1, 2, 7, 8, 9, 4095, 4096, 4097, 20001}) {
        auto values = normals<T>(n, n);
        for (T& value : values) value += T{3};
        long double mean = 0, squares = 0;
        for (const T value : values) mean += static_cast<long double>(value) / static_cast<long double>(n);
        for (const T value : values)
            squares += (static_cast<long double>(value) - mean) * (static_cast<long double>(value) - mean);
        const double expected = std::sqrt(static_cast<double>(squares / static_cast<long double>(n)));
        CHECK(moments_of(std::span<const T>{values}).deviation ==
              Approx(expected).epsilon(1e-12).margin(sizeof(T) == 4 ? 1e-7 : 0));
    }
    CHECK(moments_of(std::span<const T>{}).deviation == 0);
}

TEMPLATE_TEST_CASE("compress/terngrad: a worker without rows sends zeros, and equal values are not clipped away",
                   "[compress]", float, double) {
    using T = TestType;
    constexpr std::size_t n = 30;
    auto values = normals<T>(n, 3);
    values.resize(2 * n);
    by_hand<T, terngrad> both{{}, {5, 6}, 2}, none{{}, {5, 6}, 2};
    for (std::uint32_t step = 0; step < 20; ++step) {
        const auto mean = both(values, step);
        for (std::size_t i = 0; i < n; ++i)
            CHECK((mean[i] == 0 || mean[i] == std::copysign(both.shared[0], values[i])));
        CHECK(none(std::vector<T>(2 * n), step) == std::vector<T>(n));
    }
    by_hand<T, terngrad> equal{{}, {5, 6}, 1};
    CHECK(equal(std::vector<T>(n, T{-0.3F}), 0) == std::vector<T>(n, T{-0.3F}));
    for (const std::size_t size : {1, 7, 1000, 10'000, 100'001})
        for (const T value : {T{0.1F}, T{-1.7e-4F}, T{3e15F}})
            CHECK(moments_of(std::span<const T>{std::vector<T>(size, value)}).deviation == 0);
}

TEST_CASE("compress/terngrad: fields of all workers add up without a carry", "[compress]") {
    for (const std::size_t workers : {1, 2, 3, 4, 5, 7, 8, 15, 16, 100, 127, 128, 1000, 1 << 20}) {
        const std::size_t bits = ternary_fields{workers}.bits(), fields = ternary_fields{workers}.each();
        CHECK(2 * workers < std::size_t{1} << bits);
        CHECK(bits == static_cast<std::size_t>(std::ceil(std::log2(2 * static_cast<double>(workers) + 1))));
        CHECK(fields * bits <= 32);
        CHECK((fields + 1) * bits > 32);
        CHECK(terngrad{}.sizes({3, 11}, workers).elements[1] == (33 + fields - 1) / fields);
        if (workers > 200) continue;
        // All of them send the largest magnitude up, or down.
        for (const float value : {1.0F, -1.0F}) {
            by_hand<float, terngrad> sum{{}, {3, 11}, workers};
            CHECK(sum(std::vector<float>(33 * workers, value), 1) ==
                  std::vector<float>(33, value * static_cast<float>(workers)));
        }
    }
}

TEST_CASE("compress/terngrad: threads change no bit", "[compress]") {
    const auto values = values_of_workers<float>(20'000, 3, 4);
    by_hand<float, terngrad> one{{}, {100, 200}, 3}, three{{}, {100, 200}, 3, {parallel::has_threads ? 3 : 1}};
    CHECK(one(values, 5) == three(values, 5));
}

TEST_CASE("compress/terngrad: one number that is none, or infinite, is in the sum of all", "[compress]") {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
        for (const std::size_t at : {0, 16, 32, 50, 65})
            for (const double clip : {0.0, 2.5}) {
                by_hand<float, terngrad> sum{{.clip = clip}, {3, 11}, 2};
                std::vector<float> values = values_of_workers<float>(33, 2, 9);
                values[at] = bad;
                const auto all = sum(values, 1);
                CHECK(std::ranges::none_of(all, [](float one) { return std::isfinite(one); }));
            }
}

TEST_CASE("compress/terngrad: settings and errors", "[compress]") {
    STATIC_REQUIRE(!Compressor<terngrad> && keeps_state<terngrad> && traits_of<terngrad>.whole_tensors &&
                   traits_of<terngrad>.dense_vectors);
    CHECK(is_dense(terngrad{}, {1, 9}));
    CHECK(is_dense(terngrad{}, {9, 1}));
    CHECK(!is_dense(terngrad{}, {2, 2}));
    CHECK(terngrad{}.settings() == "clip=2.5");
    CHECK_NOTHROW(terngrad{.clip = 0}.check());
    for (const double clip :
         {-1.0, 1e-60, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
        CHECK_THROWS_WITH(terngrad{.clip = clip}.check(),
                          Catch::StartsWith("lockstep: terngrad has clip = ") &&
                              Catch::EndsWith("; give a number of standard deviations, such as 2.5, or 0 for no "
                                              "clipping"));
    CHECK_THROWS_WITH(
        error_feedback{terngrad{}}.check(),
        "lockstep: error_feedback around terngrad leaves residuals that are many times as large as the gradients; use "
        "terngrad "
        "alone, which is unbiased but for clipping, or error_feedback around quantize with 3 bits or more");
}
