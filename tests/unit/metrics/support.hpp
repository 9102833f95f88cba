// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of metrics share: outputs and labels of a few rows, and the sums of a metric over them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/metrics/concept.hpp"

namespace metrics_test {

using namespace lockstep;

/// Small whole outputs, so that equal ones are common.
template <class T, std::size_t Classes>
struct samples {
    using output = tensor::shape<Classes>;
    std::vector<T> y;
    std::vector<std::int32_t> label;

    explicit samples(std::size_t rows) : y(rows * Classes), label(rows) {
        const core::random_stream random{3, core::purpose::user};
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(random.below(7, i));
        for (std::size_t i = 0; i < rows; ++i)
            label[i] = static_cast<std::int32_t>(random.below(Classes, 1'000'000 + i));
    }

    /// The first of the largest outputs.
    [[nodiscard]] std::size_t predicted(std::size_t row) const {
        std::size_t best = 0;
        for (std::size_t i = 1; i < Classes; ++i)
            if (y[row * Classes + i] > y[row * Classes + best]) best = i;
        return best;
    }

    [[nodiscard]] auto mean_sum(const auto& metric) const {
        return metric(tensor::batch<const T, output>{y.data(), label.size()},
                      tensor::targets<tensor::classes<Classes>, T>{label});
    }

    /// The result over all rows, which are added in two parts.
    template <class Metric>
    [[nodiscard]] auto result(const Metric& metric) const {
        const std::size_t rows = label.size(), cut = rows / 3;
        std::vector<double> sums(metrics::sums_of<Metric, output>);
        for (const auto& [first, count] : {std::pair{std::size_t{0}, cut}, {cut, rows - cut}})
            metric.add(metrics::sums_pass<T, output, tensor::classes<Classes>>{{y.data() + first * Classes, count},
                                                                               std::span{label}.subspan(first, count),
                                                                               std::span{label}.first(1),
                                                                               sums});
        return metric.result(sums, rows);
    }
};

}  // namespace metrics_test
