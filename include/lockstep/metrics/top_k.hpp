// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many rows have their class among the k largest outputs: models Metric.

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/metrics/concept.hpp"
#include "lockstep/metrics/predicted_class.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// Counts the rows whose label has one of the k largest outputs; the lower number comes first among equals, so k = 1 is
/// accuracy. A row that holds a NaN is never correct, nor is one with a label outside 0 .. classes - 1. Russakovsky et
/// al. (2015) count errors with k = 5.
struct top_k {
    int k = 5;

    static constexpr std::string_view name = "top_k";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;

    [[nodiscard]] std::string settings() const { return core::text("k=", k); }
    /// Throws core::error unless k is 1 or more.
    void check() const {
        if (k < 1) core::fail(core::text("top_k has k = ", k), "take 1 or more, such as 5");
    }
    /// Throws core::error where every row would be correct.
    void check_outputs(std::size_t classes) const {
        if (static_cast<std::size_t>(k) >= classes)
            core::fail(core::text("top_k has k = ", k, " among ", classes, " classes: every answer would be right"),
                       "take a k below the number of classes");
    }

    template <class T, tensor::Shape Output>
    [[nodiscard]] std::size_t operator()(tensor::batch<const T, Output> y,
                                         tensor::targets<label<Output>, T> target) const noexcept {
        std::size_t correct = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            if (!is_class(target[row], Output::size)) continue;
            const auto scores = y.sample(row);
            const auto own = static_cast<std::size_t>(target[row]);
            int before = 0;
            bool numbers = true;
            for (std::size_t i = 0; i < Output::size; ++i) {
                numbers = numbers && !std::isnan(scores[i]);
                before += scores[i] > scores[own] || (scores[i] == scores[own] && i < own) ? 1 : 0;
            }
            correct += numbers && before < k ? 1 : 0;
        }
        return correct;
    }
};

static_assert(Metric<top_k>);

}  // namespace lockstep::metrics
