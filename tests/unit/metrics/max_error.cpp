// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/metrics/max_error.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "support.hpp"

using namespace metrics_test;

namespace {

constexpr std::size_t outputs = 3;
using output = tensor::shape<outputs>;

template <class T>
double measure(const std::vector<T>& y, const std::vector<T>& t, std::size_t cut) {
    const std::size_t rows = y.size() / outputs;
    std::vector<double> maxima(metrics::maxima_of<metrics::max_error, output>,
                               -std::numeric_limits<double>::infinity());
    const std::span<const T> labels{t};
    for (const auto& [first, count] : {std::pair{std::size_t{0}, cut}, {cut, rows - cut}})
        metrics::max_error{}.add(metrics::sums_pass<T, output, output>{{y.data() + first * outputs, count},
                                                                       labels.subspan(first * outputs, count * outputs),
                                                                       labels.first(outputs),
                                                                       {},
                                                                       maxima});
    return metrics::max_error{}.result({}, maxima, rows);
}

}  // namespace

TEST_CASE("metrics/max_error: a maximum has the same bits in any order", "[metrics]") {
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
    for (const double a : {-inf, -1.0, -0.0, 0.0, 2.0, inf, nan, -nan})
        for (const double b : {-inf, -1.0, -0.0, 0.0, 2.0, inf, nan, -nan}) {
            double one = -inf, other = -inf;
            for (const double value : {a, b}) metrics::take_largest(one, value);
            for (const double value : {b, a}) metrics::take_largest(other, value);
            CHECK(std::bit_cast<std::uint64_t>(one) == std::bit_cast<std::uint64_t>(other));
            CHECK((std::isnan(one) ? std::isnan(a) || std::isnan(b) : one == std::max(a, b)));
        }
}

TEMPLATE_TEST_CASE("metrics/max_error: the largest difference, wherever it is, and a NaN stays", "[metrics]", float,
                   double) {
    using T = TestType;
    static_assert(metrics::sums_of<metrics::max_error, output> == 0);
    static_assert(metrics::maxima_of<metrics::max_error, output> == 1);
    static_assert(metrics::is_one_number<metrics::max_error>);
    const core::random_stream random{4, core::purpose::user};
    for (const std::size_t rows : {1, 2, 9})
        for (std::size_t at = 0; at < rows * outputs; ++at)
            for (const double sign : {-1.0, 1.0}) {
                std::vector<T> y(rows * outputs), t(rows * outputs);
                for (std::size_t i = 0; i < y.size(); ++i) t[i] = y[i] = static_cast<T>(random.normal(i));
                CHECK(measure(y, t, rows / 2) == 0);
                y[at] = t[at] + static_cast<T>(sign * 3);
                const double wanted = std::abs(static_cast<double>(y[at]) - static_cast<double>(t[at]));
                for (std::size_t i = 0; i < y.size(); ++i)
                    if (i != at) t[i] += static_cast<T>(random.uniform(i));  // errors below 1
                CHECK(measure(y, t, rows / 2) == wanted);
                y[at] = std::numeric_limits<T>::quiet_NaN();
                CHECK(std::isnan(measure(y, t, rows / 2)));
            }
}
