// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/normalisation/row_moments.hpp"

#include <catch2/catch.hpp>

#include "reference/normalisation.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

namespace {

constexpr double epsilon = 1e-3;

template <class T>
struct result {
    array<T> y, dx, gradient, sum;
    std::vector<kernels::row_moments<T>> moments;
};

template <class T>
struct data {
    std::size_t rows, n;
    array<T> x, dy, scale, shift;

    data(std::size_t height, std::size_t width)
        : rows{height},
          n{width},
          x{uniform<T>(rows * n, 1)},
          dy{uniform<T>(rows * n, 2)},
          scale{uniform<T>(n, 3)},
          shift{uniform<T>(n, 4)} {}

    [[nodiscard]] result<T> run(int threads = 1) const {
        result<T> out{unwritten<T>(rows * n), unwritten<T>(rows * n), unwritten<T>(n), unwritten<T>(n),
                      std::vector<kernels::row_moments<T>>(rows)};
        kernels::normalise_rows(rows, n, x.data(), scale.data(), shift.data(), epsilon, out.y.data(),
                                out.moments.data(), {threads});
        kernels::normalise_rows_backward(rows, n, x.data(), dy.data(), scale.data(), out.moments.data(), out.dx.data(),
                                         {threads});
        kernels::normalise_rows_gradients(rows, n, x.data(), dy.data(), out.moments.data(), out.gradient.data(),
                                          out.sum.data(), {threads});
        return out;
    }
};

}  // namespace

TEMPLATE_TEST_CASE("kernels/row_moments: against the reference, equal bits on any number of threads", "[kernels]",
                   float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    for (const std::size_t n : {std::size_t{1}, std::size_t{2}, w - 1, w, w + 1, 4 * w - 1, 4 * w, 4 * w + 1,
                                std::size_t{101}, std::size_t{1000}})
        for (const std::size_t rows : {0, 1, 3, 17}) {
            const data<TestType> of{rows, n};
            const auto got = of.run();
            const auto exact = kernels::reference::moments_of(rows, n, n, 1, of.x.data());
            std::vector<double> y(rows * n), dx(rows * n), gradient(n), sum(n);
            // Sums of n terms below 1/2, spread over the elements of four vectors; 1 / deviation is at most 1 /
            // sqrt(epsilon) = 32, and its error that of the variance times half its third power.
            const double terms = static_cast<double>(n) / static_cast<double>(4 * w) + static_cast<double>(w) + 8;
            double worst_y = 0, worst_dx = 0;
            for (std::size_t r = 0; r < rows; ++r) {
                const double inverse = 1 / std::sqrt(exact.variance[r] + epsilon);
                std::vector<double> h(n), g(n), out;
                for (std::size_t i = 0; i < n; ++i) {
                    const double gradient_here = static_cast<double>(of.dy[r * n + i]);
                    h[i] = (static_cast<double>(of.x[r * n + i]) - exact.mean[r]) * inverse;
                    g[i] = gradient_here * static_cast<double>(of.scale[i]);
                    y[r * n + i] = h[i] * static_cast<double>(of.scale[i]) + static_cast<double>(of.shift[i]);
                    gradient[i] += gradient_here * h[i];
                    sum[i] += gradient_here;
                }
                kernels::reference::normalise_backward(h, g, inverse, out);
                const double error_of_h = terms * eps * (inverse + 0.5 * inverse * inverse * 1.0);
                for (std::size_t i = 0; i < n; ++i) {
                    worst_y =
                        std::max(worst_y, std::abs(static_cast<double>(got.y[r * n + i]) - y[r * n + i]) / error_of_h);
                    worst_dx = std::max(worst_dx, std::abs(static_cast<double>(got.dx[r * n + i]) - out[i]) /
                                                      (inverse * (error_of_h + terms * eps)));
                }
            }
            INFO("rows " << rows << " columns " << n);
            REQUIRE(worst_y <= 1);
            REQUIRE(worst_dx <= 2);
            const double most = 1 / std::sqrt(epsilon);
            REQUIRE(distance(got.sum, sum) <= static_cast<double>(rows * (rows + 1)) * 0.5 * eps);
            REQUIRE(distance(got.gradient, gradient) <=
                    static_cast<double>(rows) * (static_cast<double>(rows) + terms) * eps * (most + 0.5 * most * most));
            for (const int threads : {2, 3}) {
                const auto again = of.run(threads);
                REQUIRE(same_bits(again.y, got.y));
                REQUIRE(same_bits(again.dx, got.dx));
                REQUIRE(same_bits(again.gradient, got.gradient));
                REQUIRE(same_bits(again.sum, got.sum));
            }
        }
}

TEMPLATE_TEST_CASE("kernels/row_moments: a row has the same bits wherever it lies, and may be its own result",
                   "[kernels]", float, double) {
    const data<TestType> of{7, 45};
    const auto got = of.run();
    for (std::size_t first = 0; first < 7; ++first) {
        auto y = array<TestType>(of.x.begin() + static_cast<std::ptrdiff_t>(first * 45),
                                 of.x.begin() + static_cast<std::ptrdiff_t>(first * 45 + 45));
        auto dx = array<TestType>(of.dy.begin() + static_cast<std::ptrdiff_t>(first * 45),
                                  of.dy.begin() + static_cast<std::ptrdiff_t>(first * 45 + 45));
        kernels::normalise_rows(1, 45, y.data(), of.scale.data(), of.shift.data(), epsilon, y.data(),
                                static_cast<kernels::row_moments<TestType>*>(nullptr), {1});
        kernels::normalise_rows_backward(1, 45, of.x.data() + first * 45, dx.data(), of.scale.data(),
                                         got.moments.data() + first, dx.data(), {1});
        REQUIRE(std::memcmp(y.data(), got.y.data() + first * 45, 45 * sizeof(TestType)) == 0);
        REQUIRE(std::memcmp(dx.data(), got.dx.data() + first * 45, 45 * sizeof(TestType)) == 0);
    }
}

TEST_CASE("kernels/row_moments: long rows far from 0", "[kernels]") {
    for (const std::size_t n : {1, 768, 12'288, 150'528, 160'000})
        for (const double middle : {1000.1, 12'346.0, -3e5})
            for (const double size : {0.0, 1.0}) {
                auto x = uniform<float>(n, 5);
                for (float& one : x) one = static_cast<float>(middle + size * static_cast<double>(one));
                const auto exact = kernels::reference::moments_of(1, n, n, 1, x.data());
                const array<float> scale(n, 1), shift(n, 0);
                auto y = unwritten<float>(n);
                kernels::row_moments<float> got{};
                kernels::normalise_rows(1, n, x.data(), scale.data(), shift.data(), 1e-5, y.data(), &got, {1});
                const double deviation = std::sqrt(exact.variance[0] + 1e-5);
                const double last_bit = std::abs(middle) * std::numeric_limits<float>::epsilon();
                double worst = 0;
                for (std::size_t i = 0; i < n; ++i)
                    worst = std::max(worst, std::abs(static_cast<double>(y[i]) -
                                                     (static_cast<double>(x[i]) - exact.mean[0]) / deviation));
                INFO(n << " numbers around " << middle << ", size " << size);
                CHECK(worst <= (size == 0 ? 0 : (last_bit + 1e-5) / deviation));
                // The mean is rounded to its last bit, and the squares are those of distances from it.
                const double rounding = last_bit / 2 / deviation;
                CHECK(std::abs(static_cast<double>(got.inverse) * deviation - 1) <= 1e-5 + rounding * rounding / 2);
            }
}

TEMPLATE_TEST_CASE("kernels/row_moments: a NaN makes its row NaN", "[kernels]", float, double) {
    for (const std::size_t n : {1, 5, 8, 37})
        for (std::size_t at = 0; at < n; ++at) {
            data<TestType> of{3, n};
            of.x[n + at] = std::numeric_limits<TestType>::quiet_NaN();
            const auto got = of.run();
            for (std::size_t i = 0; i < 3 * n; ++i) REQUIRE(std::isnan(got.y[i]) == (i / n == 1));
        }
}

TEMPLATE_TEST_CASE("kernels/row_moments: results far larger than the caches have the bits of those in place",
                   "[kernels]", float, double) {
    // Whole lines, and rows whose lines begin anywhere.
    for (const std::size_t n : {80, 21}) {
        const std::size_t rows = rows_beyond_caches<TestType>(n);
        const auto x = repeated<TestType>(rows * n, 1), dy = repeated<TestType>(rows * n, 2);
        const auto scale = uniform<TestType>(n, 3), shift = uniform<TestType>(n, 4);
        std::vector<kernels::row_moments<TestType>> moments(rows);
        const auto forward = [&](const TestType* from, TestType* to) {
            kernels::normalise_rows(rows, n, from, scale.data(), shift.data(), epsilon, to, moments.data(), {2});
        };
        auto apart = unwritten<TestType>(rows * n), place = x;
        forward(x.data(), apart.data());
        forward(place.data(), place.data());
        REQUIRE(same_bits(apart, place));
        const auto backward = [&](const TestType* gradients, TestType* to) {
            kernels::normalise_rows_backward(rows, n, x.data(), gradients, scale.data(), moments.data(), to, {2});
        };
        place = dy;
        backward(dy.data(), apart.data());
        backward(place.data(), place.data());
        REQUIRE(same_bits(apart, place));
    }
}
