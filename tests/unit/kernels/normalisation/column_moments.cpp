// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/normalisation/column_moments.hpp"

#include <catch2/catch.hpp>

#include "reference/normalisation.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

namespace {

template <class T>
const std::vector<std::size_t>& widths() {
    constexpr std::size_t w = simd::width<T>;
    static const std::vector<std::size_t> all{1, 2, 3, w - 1, w, w + 1, 2 * w, 4 * w, 4 * w + 1, 5 * w, 53, 64, 601};
    return all;
}
const std::vector<std::size_t> heights{0, 1, 2, 15, 16, 17, 53, 300};

/// How much the sum of squares about a number of a chunk may exceed that about the mean.
double excess(std::size_t rows, std::size_t n) {
    return 1 + static_cast<double>(std::min(rows, kernels::detail::chunk_rows(n)));
}

/// Relative error of a sum by chunks: the additions in a chunk, and a few operations for each chunk.
template <class T>
double growth(std::size_t rows, std::size_t n) {
    const std::size_t chunk = std::min(rows, kernels::detail::chunk_rows(n));
    return static_cast<double>(chunk + 4 * kernels::detail::chunk_count(rows, n) + 6) *
           static_cast<double>(std::numeric_limits<T>::epsilon());
}

template <class T>
struct moments {
    array<T> mean;
    array<T> variance;
};

template <class T>
moments<T> run(std::size_t rows, std::size_t n, const array<T>& x, int threads = 1) {
    moments<T> out{unwritten<T>(n), unwritten<T>(n)};
    scratch<T> s(kernels::column_sums_scratch<T>(rows, n), {threads});
    kernels::column_moments<T>(rows, n, x.data(), out.mean.data(), out.variance.data(), s.use);
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/column_moments: against the reference, equal bits on any number of threads", "[kernels]",
                   float, double) {
    for (const std::size_t n : widths<TestType>())
        for (const std::size_t rows : heights) {
            auto x = uniform<TestType>(rows * n, 1);
            for (auto& one : x) one += TestType{0.25};
            const auto want = kernels::reference::moments_of(n, 1, rows, n, x.data());
            const auto got = run(rows, n, x);
            INFO("rows " << rows << " columns " << n);
            const double g = growth<TestType>(rows, n);
            REQUIRE(distance(got.mean, want.mean) <= 0.75 * g);
            REQUIRE(distance(got.variance, want.variance) <= 0.25 * g * excess(rows, n) + g * g);
            for (const int threads : {2, 3}) {
                const auto again = run(rows, n, x, threads);
                REQUIRE(same_bits(again.mean, got.mean));
                REQUIRE(same_bits(again.variance, got.variance));
            }
        }
}

TEMPLATE_TEST_CASE("kernels/column_moments: a mean far from zero leaves the variance of 100'000 rows", "[kernels]",
                   float, double) {
    constexpr std::size_t rows = 100'000, n = 3;
    constexpr TestType far{1000};
    auto x = uniform<TestType>(rows * n, 1);
    for (auto& one : x) one += far;
    const auto want = kernels::reference::moments_of(n, 1, rows, n, x.data());
    const auto got = run(rows, n, x);
    // The difference of large sums of squares would be off by 10^6 times epsilon, or 0.06 in float.
    const double g = growth<TestType>(rows, n);
    const double eps = static_cast<double>(std::numeric_limits<TestType>::epsilon());
    for (std::size_t j = 0; j < n; ++j) {
        CHECK(std::abs(static_cast<double>(got.mean[j]) - want.mean[j]) <= 0.5 * g + 40 * 1000.5 * eps);
        // Distances are exact, because their operands agree in the leading digits. Means of chunks are rounded to
        // epsilon / 2 of 1000.
        CHECK(std::abs(static_cast<double>(got.variance[j]) - want.variance[j]) <=
              want.variance[j] * g * excess(rows, n) + 1000.5 * eps);
    }
    CHECK(std::abs(static_cast<double>(got.variance[0]) - 1.0 / 12) <= 2e-3);
}

TEMPLATE_TEST_CASE("kernels/column_moments: one number that is far away leaves the variance, wherever it is",
                   "[kernels]", float, double) {
    for (const std::size_t n : {1, 8, 33}) {
        const std::size_t rows = kernels::detail::chunk_rows(n);
        for (const std::size_t at : {std::size_t{0}, rows / 2, rows - 1, rows / 3})
            for (const TestType far : {TestType{-10}, TestType{90}, TestType{1e4F}}) {
                auto x = uniform<TestType>(rows * n, 1);
                for (std::size_t j = 0; j < n; ++j) x[at * n + j] = far;
                const auto want = kernels::reference::moments_of(n, 1, rows, n, x.data());
                const auto got = run(rows, n, x);
                INFO(n << " columns, row " << at << " of " << rows << " is " << far);
                for (std::size_t j = 0; j < n; ++j) {
                    // Additions of numbers with one sign, and what is left of (sum of d)^2 / P.
                    const double error = std::abs(static_cast<double>(got.variance[j]) - want.variance[j]);
                    CHECK(error <= 2 * growth<TestType>(rows, n) * want.variance[j]);
                }
            }
    }
}

TEMPLATE_TEST_CASE("kernels/column_moments: equal numbers have no variance, and a NaN stays in its column", "[kernels]",
                   float, double) {
    const array<TestType> same(64 * 10, TestType{0.5});
    CHECK(same_bits(run(64, 10, same).variance, array<TestType>(10)));
    for (const std::size_t n : {3, 9, 37})
        for (const std::size_t at : {std::size_t{0}, std::size_t{2}, n - 1}) {
            auto x = uniform<TestType>(40 * n, 1);
            x[17 * n + at] = std::numeric_limits<TestType>::quiet_NaN();
            const auto got = run(40, n, x);
            for (std::size_t j = 0; j < n; ++j) {
                REQUIRE(std::isnan(got.mean[j]) == (j == at));
                REQUIRE(std::isnan(got.variance[j]) == (j == at));
            }
        }
}

TEMPLATE_TEST_CASE("kernels/column_moments: normalised columns and their backward pass", "[kernels]", float, double) {
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    for (const std::size_t n : widths<TestType>())
        for (const std::size_t rows : heights) {
            const auto x = uniform<TestType>(rows * n, 1), dy = uniform<TestType>(rows * n, 2);
            const auto mean = uniform<TestType>(n, 3), scale = uniform<TestType>(n, 4), shift = uniform<TestType>(n, 5);
            const auto sum = uniform<TestType>(n, 6), gradient = uniform<TestType>(n, 7);
            std::vector<double> y(rows * n), dx(rows * n), dscale(n), dshift(n);
            for (std::size_t i = 0; i < rows * n; ++i) {
                const auto at = [j = i % n](const array<TestType>& of) { return static_cast<double>(of[j]); };
                const double from_mean = static_cast<double>(x[i]) - at(mean);
                y[i] = from_mean * at(scale) + at(shift);
                dx[i] = (static_cast<double>(dy[i]) - at(sum) - from_mean * at(gradient)) * at(scale);
                dscale[i % n] += static_cast<double>(dy[i]) * from_mean * at(scale);
                dshift[i % n] += static_cast<double>(dy[i]);
            }
            INFO("rows " << rows << " columns " << n);
            array<TestType> first_y, first_dx, first_gradient, first_sum;
            for (const int threads : thread_counts()) {
                auto got = unwritten<TestType>(rows * n), back = got, got_gradient = unwritten<TestType>(n),
                     got_sum = got_gradient;
                scratch<TestType> s(kernels::column_sums_scratch<TestType>(rows, n), {threads});
                kernels::normalise_columns(rows, n, x.data(), mean.data(), scale.data(), shift.data(), got.data(),
                                           {threads});
                kernels::normalise_columns_backward(rows, n, x.data(), dy.data(), mean.data(), scale.data(), sum.data(),
                                                    gradient.data(), back.data(), {threads});
                kernels::column_gradients<TestType>(rows, n, x.data(), dy.data(), mean.data(), scale.data(),
                                                    got_gradient.data(), got_sum.data(), s.use);
                // Four roundings of numbers up to 1 and 2; sums of terms up to 1/2.
                REQUIRE(distance(got, y) <= 2 * eps);
                REQUIRE(distance(back, dx) <= 4 * eps);
                REQUIRE(distance(got_gradient, dscale) <= growth<TestType>(rows, n) * 0.5 * static_cast<double>(rows));
                REQUIRE(distance(got_sum, dshift) <= growth<TestType>(rows, n) * 0.5 * static_cast<double>(rows));
                if (threads == 1) {
                    first_y = got;
                    first_dx = back;
                    first_gradient = got_gradient;
                    first_sum = got_sum;
                    auto in_place = x, back_in_place = dy;
                    kernels::normalise_columns(rows, n, in_place.data(), mean.data(), scale.data(), shift.data(),
                                               in_place.data(), {1});
                    kernels::normalise_columns_backward(rows, n, x.data(), back_in_place.data(), mean.data(),
                                                        scale.data(), sum.data(), gradient.data(), back_in_place.data(),
                                                        {1});
                    REQUIRE(same_bits(in_place, got));
                    REQUIRE(same_bits(back_in_place, back));
                }
                REQUIRE(same_bits(got, first_y));
                REQUIRE(same_bits(back, first_dx));
                REQUIRE(same_bits(got_gradient, first_gradient));
                REQUIRE(same_bits(got_sum, first_sum));
            }
        }
}

TEMPLATE_TEST_CASE("kernels/column_moments: what follows normalised columns has the bits of a pass of its own",
                   "[kernels]", float, double) {
    constexpr TestType nan = std::numeric_limits<TestType>::quiet_NaN();
    for (const std::size_t n : widths<TestType>())
        for (const std::size_t rows : heights) {
            auto x = uniform<TestType>(rows * n, 1), other = uniform<TestType>(rows * n, 8),
                 dy = uniform<TestType>(rows * n, 2);
            const auto mean = uniform<TestType>(n, 3), scale = uniform<TestType>(n, 4), shift = uniform<TestType>(n, 5);
            const auto share_of_sum = uniform<TestType>(n, 6), share_of_gradient = uniform<TestType>(n, 7);
            if (rows > 15) {
                x[3 * n] = other[4 * n + n / 2] = dy[5 * n] = nan;
                x[6 * n] = mean[0];
            }
            for (const int threads : thread_counts())
                for (const bool in_place : {false, true}) {
                    const parallel::team team{threads};
                    INFO("rows " << rows << " columns " << n << " threads " << threads);
                    auto z = unwritten<TestType>(rows * n), y = z, y_sum = z, sum = z;
                    kernels::normalise_columns(rows, n, x.data(), mean.data(), scale.data(), shift.data(), z.data(),
                                               team);
                    for (std::size_t i = 0; i < rows * n; ++i) sum[i] = other[i] + z[i];
                    kernels::relu_forward<TestType>(z, y);
                    kernels::relu_forward<TestType>(sum, y_sum);
                    auto got = in_place ? x : unwritten<TestType>(rows * n),
                         got_sum = in_place ? other : unwritten<TestType>(rows * n);
                    const kernels::rectified<TestType> then{scale.data(), shift.data()};
                    kernels::normalise_columns(rows, n, in_place ? got.data() : x.data(), mean.data(), scale.data(),
                                               shift.data(), got.data(), team, then);
                    kernels::normalise_columns(
                        rows, n, x.data(), mean.data(), scale.data(), shift.data(), got_sum.data(), team,
                        kernels::rectified_sum<TestType>{in_place ? got_sum.data() : other.data()});
                    REQUIRE(same_bits(got, y));
                    REQUIRE(same_bits(got_sum, y_sum));

                    const auto gradients_of = [&](const array<TestType>& gradients, auto what) {
                        auto out = unwritten<TestType>(2 * n);
                        scratch<TestType> s(kernels::column_sums_scratch<TestType>(rows, n), team);
                        kernels::column_gradients<TestType>(rows, n, x.data(), gradients.data(), mean.data(),
                                                            scale.data(), out.data(), out.data() + n, s.use, what);
                        return out;
                    };
                    const auto back = [&](const array<TestType>& gradients, auto what) {
                        auto out = in_place ? gradients : unwritten<TestType>(rows * n);
                        kernels::normalise_columns_backward(rows, n, x.data(), in_place ? out.data() : gradients.data(),
                                                            mean.data(), scale.data(), share_of_sum.data(),
                                                            share_of_gradient.data(), out.data(), team, what);
                        return out;
                    };
                    auto dz = unwritten<TestType>(rows * n), dsum = dz;
                    kernels::relu_backward<TestType>(y, dy, dz);
                    kernels::relu_backward<TestType>(y_sum, dy, dsum);
                    REQUIRE(same_bits(gradients_of(dy, then), gradients_of(dz, kernels::unchanged{})));
                    REQUIRE(same_bits(back(dy, then), back(dz, kernels::unchanged{})));
                    auto masked = in_place ? dy : unwritten<TestType>(rows * n);
                    const auto fused = gradients_of(in_place ? masked : dy, kernels::rectified_sum_gradients<TestType>{
                                                                                y_sum.data(), masked.data()});
                    REQUIRE(same_bits(fused, gradients_of(dsum, kernels::unchanged{})));
                    REQUIRE(same_bits(masked, dsum));
                    // dy in two parts.
                    auto both = dy;
                    for (std::size_t i = 0; i < rows * n; ++i) both[i] = dy[i] + other[i];
                    kernels::relu_backward<TestType>(y_sum, both, dsum);
                    masked = in_place ? dy : unwritten<TestType>(rows * n);
                    const auto added = gradients_of(
                        in_place ? masked : dy,
                        kernels::rectified_sum_both_gradients<TestType>{{y_sum.data(), masked.data()}, other.data()});
                    REQUIRE(same_bits(added, gradients_of(dsum, kernels::unchanged{})));
                    REQUIRE(same_bits(masked, dsum));
                }
        }
}

TEMPLATE_TEST_CASE("kernels/column_moments: results far larger than the caches have the bits of those in place",
                   "[kernels]", float, double) {
    // Whole lines, and rows whose lines begin anywhere.
    for (const std::size_t n : {80, 21}) {
        const std::size_t rows = rows_beyond_caches<TestType>(n);
        const auto x = repeated<TestType>(rows * n, 1), dy = repeated<TestType>(rows * n, 2);
        const auto mean = uniform<TestType>(n, 3), scale = uniform<TestType>(n, 4), shift = uniform<TestType>(n, 5);
        const auto forward = [&](const TestType* from, TestType* to, auto then) {
            kernels::normalise_columns(rows, n, from, mean.data(), scale.data(), shift.data(), to, {2}, then);
        };
        auto apart = unwritten<TestType>(rows * n), place = x;
        forward(x.data(), apart.data(), kernels::unchanged{});
        forward(place.data(), place.data(), kernels::unchanged{});
        REQUIRE(same_bits(apart, place));
        place = dy;
        forward(x.data(), apart.data(), kernels::rectified_sum<TestType>{dy.data()});
        forward(x.data(), place.data(), kernels::rectified_sum<TestType>{place.data()});
        REQUIRE(same_bits(apart, place));
        const auto backward = [&](const TestType* gradients, TestType* to) {
            kernels::normalise_columns_backward(rows, n, x.data(), gradients, mean.data(), scale.data(), shift.data(),
                                                mean.data(), to, {2});
        };
        place = dy;
        backward(dy.data(), apart.data());
        backward(place.data(), place.data());
        REQUIRE(same_bits(apart, place));
    }
}
