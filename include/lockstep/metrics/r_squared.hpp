// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The coefficient of determination of a regression: models Metric.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/metrics/concept.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// R^2 of each output, and their mean, which stands for all of them where one number is asked for.
struct determination {
    std::vector<double> outputs{};
    double mean = 0;

    [[nodiscard]] operator double() const noexcept { return mean; }
};

/// R^2 = 1 - sum (y - t)^2 / sum (t - mean(t))^2 over all rows, for each output: 1 is exact, 0 as good as the mean,
/// less is worse. The mean over outputs is the uniform average of scikit-learn. Throws core::error where all targets of
/// an output are alike. One pass: with d = t - s the denominator is sum d^2 - (sum d)^2 / rows, where s is the target
/// of sample 0, so a large mean of the targets cancels nothing. In double; relative to 1 - R^2 the error is at most
/// about rows (1 + (s - mean)^2 / variance) epsilons. The second factor is below rows + 1, and about 2 for a usual
/// sample 0. Three sums for each output.
struct r_squared {
    static constexpr std::string_view name = "r_squared";

    template <tensor::Shape Output>
    using label = Output;
    template <tensor::Shape Output>
    static constexpr std::size_t sum_count = 3 * Output::size;

    template <class T, tensor::Shape Output>
    void add(const sums_pass<T, Output, Output>& pass) const noexcept {
        // Of each output: d, d^2, and the square of what the network is wrong by.
        for (std::size_t row = 0; row < pass.y.rows; ++row)
            for (std::size_t i = 0; i < Output::size; ++i) {
                const auto t = static_cast<double>(pass.target[row * Output::size + i]);
                const double shifted = t - static_cast<double>(pass.first[i]),
                             wrong = static_cast<double>(pass.y.data[row * Output::size + i]) - t;
                double* const sums = pass.sums.data() + 3 * i;
                sums[0] += shifted;
                sums[1] += shifted * shifted;
                sums[2] += wrong * wrong;
            }
    }

    [[nodiscard]] determination result(std::span<const double> sums, std::size_t rows) const {
        determination out;
        for (std::size_t at = 0; at < sums.size(); at += 3) {
            const double variation = sums[at + 1] - sums[at] * sums[at] / static_cast<double>(rows);
            if (!(variation > 0))
                core::fail(core::text("r_squared is not defined: all ", rows, " targets of output ", at / 3,
                                      " are alike, or not finite"),
                           "evaluate samples with several targets, or look at the loss alone");
            out.outputs.push_back(1 - sums[at + 2] / variation);
            out.mean += out.outputs.back();
        }
        out.mean /= static_cast<double>(out.outputs.size());
        return out;
    }
};

static_assert(Metric<r_squared>);

}  // namespace lockstep::metrics
