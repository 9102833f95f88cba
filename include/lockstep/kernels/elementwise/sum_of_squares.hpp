// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sum of squares in double over a binary tree over the index: one node of a tensor's sum, whoever adds it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "lockstep/kernels/library.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::kernels {

namespace detail {

/// Neighbours in pairs, then neighbouring sums, until one is left.
template <std::size_t Count>
[[nodiscard]] inline double sum_pairs(const double* values) noexcept {
    if constexpr (Count == 1) {
        return values[0];
    } else {
        std::array<double, Count / 2> sums;
        for (std::size_t i = 0; i < Count / 2; ++i) sums[i] = values[2 * i] + values[2 * i + 1];
        return sum_pairs<Count / 2>(sums.data());
    }
}

}  // namespace detail

/// x[0]^2 + .. + x[n-1]^2 over the tree of tensor::cover(): node (level, i) has the numbers i 2^level .. (i+1) 2^level
/// - 1, cut off at n, and is the sum of its two halves. Squares of floats are exact in double; the relative error is at
/// most log2(n) epsilons. The same bits for every vector width. One pass over memory, at the speed of the second-level
/// cache.
template <class T>
[[nodiscard]] double sum_of_squares(std::span<const T> x) noexcept {
    constexpr std::size_t block = 64;
    std::array<double, 64> partials{};
    const auto fill = [&](std::size_t number, std::size_t level) {
        const std::size_t first = number * block, count = std::min(block, x.size() - first);
        // What is beyond the end adds nothing, as a zero does.
        std::array<double, block> squares{};
        const T* const from = x.data() + first;
        const auto square = [&](std::size_t i) {
            const auto value = static_cast<double>(from[i]);
            squares[i] = value * value;
        };
        if (count == block)
            for (std::size_t i = 0; i < block; ++i) square(i);
        else
            for (std::size_t i = 0; i < count; ++i) square(i);
        partials[level] = detail::sum_pairs<block>(squares.data());
    };
    tensor::walk((x.size() + block - 1) / block, fill, [&](std::size_t level) { partials[level] += partials[level + 1]; });
    return partials[0];
}

LOCKSTEP_TEMPLATE(sum_of_squares<float>);

}  // namespace lockstep::kernels
