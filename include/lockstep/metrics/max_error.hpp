// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The largest error of a regression: models Metric.

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/metrics/concept.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// The largest |y - t| over all rows and outputs: the error in the maximum norm, `max_error` of scikit-learn, the
/// L-infinity norm of Deep500. Differences are taken in double. One maximum; an evaluation gathers 8 bytes from each
/// rank.
struct max_error {
    static constexpr std::string_view name = "max_error";

    template <tensor::Shape Output>
    using label = Output;
    template <tensor::Shape Output>
    static constexpr std::size_t max_count = 1;

    template <class T, tensor::Shape Output>
    void add(const sums_pass<T, Output, Output>& pass) const noexcept {
        for (std::size_t i = 0; i < pass.y.size(); ++i)
            take_largest(pass.maxima[0],
                         std::abs(static_cast<double>(pass.y.data[i]) - static_cast<double>(pass.target[i])));
    }

    [[nodiscard]] double result(std::span<const double>, std::span<const double> maxima, std::size_t) const noexcept {
        return maxima[0];
    }
};

static_assert(Metric<max_error>);

}  // namespace lockstep::metrics
