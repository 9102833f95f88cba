// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/metrics/r_squared.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "support.hpp"

using namespace metrics_test;

namespace {

constexpr std::size_t outputs = 3;
using output = tensor::shape<outputs>;

template <class T>
auto measure(const std::vector<T>& y, const std::vector<T>& t) {
    const std::size_t rows = y.size() / outputs;
    std::vector<double> sums(metrics::sums_of<metrics::r_squared, output>);
    metrics::r_squared{}.add(
        metrics::sums_pass<T, output, output>{{y.data(), rows}, t, std::span{t}.first(outputs), sums});
    return metrics::r_squared{}.result(sums, rows);
}

}  // namespace

TEMPLATE_TEST_CASE("metrics/r_squared: by its definition in two passes, also far from 0", "[metrics]", float, double) {
    using T = TestType;
    const core::random_stream random{9, core::purpose::user};
    for (const std::size_t rows : {2, 7, 1000})
        for (const double mean : {0.0, 1e4, -1e9}) {
            std::vector<T> y(outputs * rows), t(outputs * rows);
            const double spread = std::is_same_v<T, float> && mean < 0 ? 1e4 : 1;  // what a float can tell apart
            for (std::size_t i = 0; i < t.size(); ++i) {
                t[i] = static_cast<T>(mean + spread * random.normal(i));
                y[i] = static_cast<T>(mean + spread * (0.7 * random.normal(i) + 0.2 * random.normal(5000 + i)));
            }
            const auto found = measure(y, t);
            long double mean_of_all = 0;
            for (std::size_t i = 0; i < outputs; ++i) {
                long double average = 0, wrong = 0, variation = 0;
                for (std::size_t row = 0; row < rows; ++row)
                    average += static_cast<long double>(t[row * outputs + i]) / static_cast<long double>(rows);
                for (std::size_t row = 0; row < rows; ++row) {
                    const auto is = static_cast<long double>(t[row * outputs + i]);
                    wrong += std::pow(static_cast<long double>(y[row * outputs + i]) - is, 2);
                    variation += std::pow(is - average, 2);
                }
                const long double first = static_cast<long double>(t[i]) - average;
                const auto n = static_cast<long double>(rows);
                // The bound that the header states; n variance = variation.
                const long double bound =
                    4 * n * (1 + n * first * first / variation) * std::numeric_limits<double>::epsilon();
                INFO(rows << " rows, mean " << mean << ", output " << i);
                CHECK(std::abs(static_cast<long double>(found.outputs.at(i)) - (1 - wrong / variation)) <=
                      bound * (wrong / variation) + std::numeric_limits<double>::epsilon());
                mean_of_all += (1 - wrong / variation) / outputs;
            }
            CHECK(found.mean == Approx(static_cast<double>(mean_of_all)).epsilon(1e-10));
            CHECK(static_cast<double>(found) == found.mean);
        }
}

TEST_CASE("metrics/r_squared: exact answers, the mean, and targets without variation", "[metrics]") {
    const std::vector<double> t{1, 5, -2, 2, 5.5, -4, 3, 7, -9};
    CHECK(measure(t, t).outputs == std::vector<double>{1, 1, 1});
    const std::vector<double> means{2, 35.0 / 6, -5, 2, 35.0 / 6, -5, 2, 35.0 / 6, -5};
    for (const double one : measure(means, t).outputs) CHECK(std::abs(one) <= 1e-14);
    CHECK_THROWS_WITH(measure(t, {1, 5, 3, 2, 5, 3, 3, 5, 3}),
                      Catch::StartsWith("lockstep: r_squared is not defined: all 3 targets of output 1 are alike"));
    CHECK_THROWS_AS(measure<double>({1, 2, 3}, {1, 2, 3}), core::error);
}
