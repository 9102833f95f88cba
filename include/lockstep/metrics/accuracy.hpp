// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many rows are classified correctly: models Metric.

#include <cstddef>
#include <string_view>

#include "lockstep/metrics/concept.hpp"
#include "lockstep/metrics/predicted_class.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// Counts the rows whose largest output, the first one among equals, has the number of the label.
/// A row that holds a NaN is never correct, nor is one with a label outside 0 .. classes - 1.
struct accuracy {
    static constexpr std::string_view name = "accuracy";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;

    template <class T, tensor::Shape Output>
    [[nodiscard]] std::size_t operator()(tensor::batch<const T, Output> y,
                                         tensor::targets<label<Output>, T> target) const noexcept {
        std::size_t correct = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            const std::ptrdiff_t best = predicted_class(y.sample(row));
            correct += best >= 0 && best == static_cast<std::ptrdiff_t>(target[row]) ? 1U : 0U;
        }
        return correct;
    }
};

static_assert(Metric<accuracy>);

}  // namespace lockstep::metrics
