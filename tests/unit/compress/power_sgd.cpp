// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/power_sgd.hpp"

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

template <class T>
constexpr double rounding = static_cast<double>(std::numeric_limits<T>::epsilon());

template <class T>
double largest(const std::vector<T>& values) {
    double out = 0;
    for (const T value : values) out = std::max(out, std::abs(static_cast<double>(value)));
    return out;
}

/// max |a - b|.
template <class A, class B>
double distance(const A& a, const B& b) {
    REQUIRE(a.size() == b.size());
    double out = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double error = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        out = std::isnan(error) ? HUGE_VAL : std::max(out, error);
    }
    return out;
}

/// m x q numbers with so many directions, with singular values 1, 1/2, 1/4 and so on up to the lengths of the
/// directions.
template <class T>
std::vector<T> of_rank(const matrix& shape, std::size_t rank, std::uint64_t seed) {
    std::vector<T> out(shape.size());
    double factor = 1;
    for (std::size_t k = 0; k < rank; ++k, factor /= 2) {
        const auto left = normals<double>(shape.rows, seed + 2 * k),
                   right = normals<double>(shape.columns, seed + 2 * k + 1);
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] += static_cast<T>(factor * left[i / shape.columns] * right[i % shape.columns]);
    }
    return out;
}

/// The largest difference of the products of columns from those of orthonormal ones.
template <class T>
double from_orthonormal(const std::vector<T>& p, std::size_t rows) {
    double out = 0;
    for (std::size_t a = 0; a < p.size(); a += rows)
        for (std::size_t b = 0; b <= a; b += rows) {
            long double product = 0;
            for (std::size_t i = 0; i < rows; ++i)
                product += static_cast<long double>(p[a + i]) * static_cast<long double>(p[b + i]);
            out = std::isnan(product) ? HUGE_VAL : std::max(out, static_cast<double>(std::abs(product - (a == b))));
        }
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("compress/power_sgd: three steps with error feedback are those of the formulas", "[compress]", float,
                   double) {
    using T = TestType;
    for (const auto& expected : {reference::first, reference::second, reference::third, reference::fourth}) {
        INFO(expected.rows << " x " << expected.columns << ", rank " << expected.rank);
        const matrix shape{expected.rows, expected.columns};
        by_hand<T, error_feedback<power_sgd>> sum{error_feedback{power_sgd{.rank = expected.rank}}, shape,
                                                  reference::workers};
        std::vector<T> values(reference::workers * shape.size());
        // Sums of up to 20 terms of up to 7; what is left of a column behind the projections loses a digit or two.
        const double bound = 2e4 * rounding<T>;
        for (std::uint32_t step = 0; step < 3; ++step) {
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = reference_number<T>(step * values.size() + i);
            CHECK(distance(sum(values, step), expected.means[step]) < bound);
        }
        const std::vector<T> residual(sum.state.begin() + static_cast<std::ptrdiff_t>(shape.size()),
                                      sum.state.begin() + static_cast<std::ptrdiff_t>(2 * shape.size()));
        CHECK(distance(residual, expected.residual) < bound);
    }
}

TEMPLATE_TEST_CASE("compress/power_sgd: means and residuals add up to the gradients, and residuals stay bounded",
                   "[compress]", float, double) {
    using T = TestType;
    constexpr std::size_t workers = 4, steps = 300;
    const matrix shape{24, 17};
    const std::size_t n = shape.size();
    by_hand<T, error_feedback<power_sgd>> sum{error_feedback{power_sgd{.rank = 2}}, shape, workers};
    std::vector<double> given(n), got(n);
    std::vector<T> values(workers * n);
    double early = 0, late = 0;
    for (std::uint32_t step = 0; step < steps; ++step) {
        for (std::size_t worker = 0; worker < workers; ++worker) {
            const auto gradient = normals<T>(n, 100 * step + worker);
            for (std::size_t i = 0; i < n; ++i) {
                values[worker * n + i] = gradient[i] / workers;
                given[i] += static_cast<double>(values[worker * n + i]);
            }
        }
        const auto mean = sum(values, step);
        for (std::size_t i = 0; i < n; ++i) got[i] += static_cast<double>(mean[i]);
        (step < steps / 2 ? early : late) = std::max(step < steps / 2 ? early : late, largest(sum.state));
    }
    auto whole = got;
    for (std::size_t i = 0; i < workers * n; ++i) whole[i % n] += static_cast<double>(sum.state[i]);
    // In each step a worker rounds some sums of its residual's size.
    CHECK(distance(whole, given) < 100 * workers * std::sqrt(steps) * rounding<T> * (early + late));
    CHECK(distance(got, given) > 0.1);
    // One worker's residual keeps what no column has taken up yet: some multiples of a gradient, however many steps
    // there were.
    CHECK(late < 2 * early);
}

TEMPLATE_TEST_CASE("compress/power_sgd: a matrix of low rank comes through whole", "[compress]", float, double) {
    using T = TestType;
    for (const std::size_t rank : {1, 2, 4}) {
        const matrix shape{40, 33};
        by_hand<T, power_sgd> sum{{.rank = rank}, shape, 2};
        for (std::uint32_t step = 0; step < 3; ++step) {
            auto values = of_rank<T>(shape, rank, 10 + step);
            const auto expected = values;
            values.resize(2 * shape.size());  // the other worker has no rows
            CHECK(distance(sum(values, step), expected) < 2e3 * rounding<T> * largest(expected));
        }
    }
}

TEMPLATE_TEST_CASE("compress/power_sgd: the warm start finds the best matrix of its rank", "[compress]", float,
                   double) {
    using T = TestType;
    // Singular values 4, 2, 1, 1/2.
    const matrix shape{12, 10};
    std::vector<T> values(shape.size());
    const T singular[] = {4, 2, 1, T{0.5F}};
    for (std::size_t k = 0; k < 4; ++k) values[(3 * k + 1) * shape.columns + 2 * k] = singular[k];
    by_hand<T, power_sgd> sum{{.rank = 2}, shape, 1};
    double first = 0, last = 0;
    for (std::uint32_t step = 0; step < 30; ++step) {
        const auto mean = sum(values, step);
        double error = 0;
        for (std::size_t i = 0; i < values.size(); ++i) error += std::pow(static_cast<double>(values[i] - mean[i]), 2);
        (step == 0 ? first : last) = std::sqrt(error);
    }
    CHECK(last == Approx(std::sqrt(1.25)).epsilon(1e-5));
    CHECK(first > 1.2 * last);
}

TEMPLATE_TEST_CASE("compress/power_sgd: columns become orthonormal, also zero, dependent, tiny and huge ones",
                   "[compress]", float, double) {
    using T = TestType;
    const core::random_stream random{3, core::purpose::reduction};
    for (const std::size_t rows : {5, 16, 37, 1000})
        for (const std::size_t count : {1, 2, 4}) {
            const auto usual = normals<T>(rows * count, rows);
            for (int change = 0; change < 7; ++change) {
                INFO(rows << " x " << count << ", change " << change);
                auto p = usual;
                const auto last = std::span{p}.last(rows);
                if (change == 1) std::fill(last.begin(), last.end(), T{0});
                if (change == 2) std::fill(p.begin(), p.end(), T{0});
                if (change == 3) std::fill(p.begin(), p.end(), T{1});
                if (change == 4)
                    for (std::size_t i = 0; i < rows; ++i)
                        last[i] = p[i] * T{3} + usual[i + rows * (count - 1)] * 3 * std::numeric_limits<T>::epsilon();
                if (change == 5)
                    for (T& value : last) value *= std::numeric_limits<T>::min();
                if (change == 6)
                    for (T& value : p) value *= std::ldexp(T{1}, std::numeric_limits<T>::max_exponent - 4);
                power_sgd::orthonormalise(std::span<T>{p}, rows, count, random);
                // A length is a sum in double, 16 ways.
                const double bound = 8 * rounding<T> + static_cast<double>(rows) / 16 * rounding<double>;
                CHECK(from_orthonormal(p, rows) < bound);
                auto again = p;
                power_sgd::orthonormalise(std::span<T>{again}, rows, count, random);
                CHECK(distance(again, p) < bound);
            }
            // The directions of usual columns: the first one keeps its own, each lies in the plane of those before it.
            auto p = usual;
            power_sgd::orthonormalise(std::span<T>{p}, rows, count, random);
            const double length = static_cast<double>(usual[0] / p[0]);
            for (std::size_t i = 0; i < rows; ++i)
                CHECK(static_cast<double>(usual[i]) == Approx(length * static_cast<double>(p[i])).margin(1e-5));
        }
    std::vector<T> bad{1, 2, std::numeric_limits<T>::infinity(), 4};
    power_sgd::orthonormalise(std::span<T>{bad}, 4, 1, random);
    for (const T value : bad) CHECK(std::isnan(value));
}

TEMPLATE_TEST_CASE("compress/power_sgd: gradients of zero leave no column without a direction", "[compress]", float,
                   double) {
    using T = TestType;
    const matrix shape{20, 30};
    by_hand<T, power_sgd> sum{{.rank = 2}, shape, 2};
    const std::vector<T> nothing(2 * shape.size());
    for (std::uint32_t step = 0; step < 3; ++step) CHECK(largest(sum(nothing, step)) == 0);
    // Q is zero now, and the next P a random one: the step behind it sees the matrix again.
    auto values = of_rank<T>(shape, 2, 5);
    const auto expected = values;
    values.resize(2 * shape.size());
    CHECK(largest(sum(values, 3)) > 0);
    CHECK(distance(sum(values, 4), expected) < 2e3 * rounding<T> * largest(expected));
}

TEST_CASE("compress/power_sgd: threads change no bit", "[compress]") {
    const matrix shape{123, 301};
    std::vector<float> values = normals<float>(3 * shape.size(), 6);
    by_hand<float, error_feedback<power_sgd>> one{error_feedback{power_sgd{.rank = 3}}, shape, 3};
    by_hand<float, error_feedback<power_sgd>> three{
        error_feedback{power_sgd{.rank = 3}}, shape, 3, {parallel::has_threads ? 3 : 1}};
    for (std::uint32_t step = 0; step < 3; ++step) {
        CHECK(one(values, step) == three(values, step));
        CHECK(one.state == three.state);
    }
}

TEST_CASE("compress/power_sgd: settings, sizes and errors", "[compress]") {
    using feedback = error_feedback<power_sgd>;
    STATIC_REQUIRE(Reduction<feedback> && Reduction<feedback, double> && !Compressor<feedback>);
    STATIC_REQUIRE(feedback::slot_count == 1 && keeps_state<power_sgd> && traits_of<feedback>.whole_tensors);
    CHECK(error_feedback{power_sgd{.rank = 2}}.settings() == "inner=power_sgd(rank=2)");
    const auto sizes = power_sgd{.rank = 2}.sizes({100, 30}, 8);
    CHECK(sizes.elements == std::array<std::size_t, 2>{200, 60});
    CHECK(sizes.shared == 260);
    // r (m + q) >= m q.
    for (std::size_t rank = 1; rank < 12; ++rank)
        for (std::size_t rows = 1; rows < 20; ++rows)
            for (std::size_t columns = 1; columns < 20; ++columns) {
                const bool dense = rows == 1 || columns == 1 || rank * (rows + columns) >= rows * columns;
                CHECK(is_dense(error_feedback{power_sgd{.rank = rank}}, {rows, columns}) == dense);
            }
    CHECK(is_dense(power_sgd{.rank = std::numeric_limits<std::size_t>::max()}, {1000, 1000}));
    CHECK_NOTHROW(error_feedback{power_sgd{}}.check());
    CHECK_THROWS_WITH(error_feedback{power_sgd{.rank = 0}}.check(),
                      "lockstep: power_sgd has rank = 0; take the number of columns of P and Q, such as 1, 2 or 4");
}
