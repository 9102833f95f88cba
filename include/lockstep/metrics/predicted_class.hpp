// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The class that a row of outputs stands for.
// Tested by tests/unit/metrics/accuracy.cpp.

#include <cmath>
#include <cstddef>
#include <span>

namespace lockstep::metrics {

/// The number of the largest output, the first one among equals; -1 where one of them is NaN.
template <class T, std::size_t Classes>
[[nodiscard]] std::ptrdiff_t predicted_class(std::span<const T, Classes> scores) noexcept {
    std::size_t best = 0;
    bool numbers = !std::isnan(scores[0]);
    for (std::size_t i = 1; i < scores.size(); ++i) {
        numbers = numbers && !std::isnan(scores[i]);
        if (scores[i] > scores[best]) best = i;
    }
    return numbers ? static_cast<std::ptrdiff_t>(best) : -1;
}

/// Whether a label is the number of a class.
[[nodiscard]] constexpr bool is_class(std::ptrdiff_t label, std::size_t classes) noexcept {
    return label >= 0 && static_cast<std::size_t>(label) < classes;
}

}  // namespace lockstep::metrics
