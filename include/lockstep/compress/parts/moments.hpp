// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Mean and standard deviation of a vector, with sums in a fixed order.
// Tested by tests/unit/compress/terngrad.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace lockstep::compress {

struct moments {
    double mean = 0;
    double deviation = 0;
};

/// Of all values, by sums of v - v_0 and of its square in double, so that equal values have the deviation 0; 0 for no
/// values. The order of additions is a function of their number.
template <class T>
[[nodiscard]] moments moments_of(std::span<const T> values) noexcept {
    constexpr std::size_t block = 4096, ways = 8;
    const double origin = values.empty() ? 0 : static_cast<double>(values[0]);
    double sum = 0, squares = 0;
    for (std::size_t first = 0; first < values.size(); first += block) {
        const std::span<const T> part = values.subspan(first, std::min(block, values.size() - first));
        std::array<double, ways> sums{}, of_squares{};
        std::size_t i = 0;
        for (; i + ways <= part.size(); i += ways)
            for (std::size_t way = 0; way < ways; ++way) {
                const double value = static_cast<double>(part[i + way]) - origin;
                sums[way] += value;
                of_squares[way] += value * value;
            }
        for (; i < part.size(); ++i) {
            const double value = static_cast<double>(part[i]) - origin;
            sums[i % ways] += value;
            of_squares[i % ways] += value * value;
        }
        for (std::size_t rest = ways / 2; rest > 0; rest /= 2)
            for (std::size_t way = 0; way < rest; ++way) {
                sums[way] += sums[way + rest];
                of_squares[way] += of_squares[way + rest];
            }
        sum += sums[0];
        squares += of_squares[0];
    }
    const double count = std::max<double>(1, static_cast<double>(values.size())), mean = sum / count;
    return {origin + mean, std::sqrt(std::max(0.0, squares / count - mean * mean))};
}

}  // namespace lockstep::compress
