// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How often each class is taken for each other one: models Metric.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/metrics/concept.hpp"
#include "lockstep/metrics/predicted_class.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// Rows of a data set by label and predicted class.
struct confusion_counts {
    std::size_t classes = 0;
    std::vector<std::uint64_t> counts{};  ///< classes x classes, row-major: a row for each label
    std::uint64_t others = 0;             ///< rows with a NaN among the outputs or a label that is no class

    /// Classes count from 0. Throws core::error for one that does not exist.
    [[nodiscard]] std::uint64_t operator()(std::size_t label, std::size_t predicted) const {
        if (label >= classes || predicted >= classes)
            core::fail(
                core::text("label ", label, ", predicted as ", predicted, ", is no pair of ", classes, " classes"),
                "count classes from 0");
        return counts[label * classes + predicted];
    }
};

/// Counts the rows of each label whose largest output, the first one among equals, is that of each class. Exact below
/// 2^53 rows. C x C sums for C classes: a rank keeps 8 C C bytes for each of its lanes, and an evaluation adds them
/// over ranks in one all-reduce.
struct confusion_matrix {
    static constexpr std::string_view name = "confusion_matrix";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;
    template <tensor::Shape Output>
    static constexpr std::size_t sum_count = Output::size* Output::size;

    template <class T, tensor::Shape Output>
    void add(const sums_pass<T, Output, tensor::classes<Output::size>>& pass) const noexcept {
        for (std::size_t row = 0; row < pass.y.rows; ++row) {
            const std::ptrdiff_t predicted = predicted_class(pass.y.sample(row));
            if (predicted < 0 || !is_class(pass.target[row], Output::size)) continue;
            pass.sums[static_cast<std::size_t>(pass.target[row]) * Output::size +
                      static_cast<std::size_t>(predicted)] += 1;
        }
    }

    [[nodiscard]] confusion_counts result(std::span<const double> sums, std::size_t rows) const {
        confusion_counts out{.others = rows};
        while (out.classes * out.classes < sums.size()) ++out.classes;
        for (const double one : sums) {
            out.counts.push_back(static_cast<std::uint64_t>(one));
            out.others -= out.counts.back();
        }
        return out;
    }
};

static_assert(Metric<confusion_matrix>);

}  // namespace lockstep::metrics
