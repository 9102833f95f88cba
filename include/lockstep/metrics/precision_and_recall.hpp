// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Precision and recall of each class, and their means: models Metric.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/metrics/concept.hpp"
#include "lockstep/metrics/predicted_class.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

struct precisions_and_recalls {
    std::vector<double> precision{};  ///< of each class: right / predicted as such, 0 where none was
    std::vector<double> recall{};     ///< of each class: right / samples of it, 0 where there are none
    double macro_precision = 0;       ///< means over the classes that occur, as a label or as a prediction
    double macro_recall = 0;
};

/// The means are those of scikit-learn with average='macro' and zero_division=0. A row with a NaN among its outputs
/// predicts no class. Three sums for each class.
struct precision_and_recall {
    static constexpr std::string_view name = "precision_and_recall";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;
    template <tensor::Shape Output>
    static constexpr std::size_t sum_count = 3 * Output::size;

    template <class T, tensor::Shape Output>
    void add(const sums_pass<T, Output, tensor::classes<Output::size>>& pass) const noexcept {
        // Of each class: right, predicted, labelled.
        for (std::size_t row = 0; row < pass.y.rows; ++row) {
            const std::ptrdiff_t predicted = predicted_class(pass.y.sample(row)), wanted = pass.target[row];
            if (predicted >= 0) pass.sums[3 * static_cast<std::size_t>(predicted) + 1] += 1;
            if (!is_class(wanted, Output::size)) continue;
            const std::span<double> own = pass.sums.subspan(3 * static_cast<std::size_t>(wanted), 3);
            own[2] += 1;
            if (predicted == wanted) own[0] += 1;
        }
    }

    [[nodiscard]] precisions_and_recalls result(std::span<const double> sums, std::size_t) const {
        precisions_and_recalls out;
        double classes = 0;
        for (std::size_t at = 0; at < sums.size(); at += 3) {
            const double right = sums[at], predicted = sums[at + 1], labelled = sums[at + 2];
            out.precision.push_back(predicted > 0 ? right / predicted : 0);
            out.recall.push_back(labelled > 0 ? right / labelled : 0);
            if (predicted + labelled == 0) continue;
            classes += 1;
            out.macro_precision += out.precision.back();
            out.macro_recall += out.recall.back();
        }
        if (classes > 0) out.macro_precision /= classes, out.macro_recall /= classes;
        return out;
    }
};

static_assert(Metric<precision_and_recall>);

}  // namespace lockstep::metrics
