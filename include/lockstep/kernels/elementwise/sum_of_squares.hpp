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

inline constexpr std::size_t squares_of_block = 256;

template <class T>
[[nodiscard]] double sum_of_squares_of_block(const T* x) noexcept {
    std::array<double, squares_of_block> squares;
    for (std::size_t i = 0; i < squares_of_block; ++i) {
        const auto value = static_cast<double>(x[i]);
        squares[i] = value * value;
    }
    return sum_pairs<squares_of_block>(squares.data());
}

}  // namespace detail

/// x[0]^2 + .. + x[n-1]^2 over the tree of tensor::cover(): a node of 2^level numbers, cut off at n, is the sum of its
/// two halves. Squares of floats are exact in double; the relative error is at most log2(n) + 1 epsilons. The same bits
/// for every vector width. One pass over memory, at the speed of the second-level cache.
template <class T>
[[nodiscard]] double sum_of_squares(std::span<const T> x) noexcept {
    constexpr std::size_t block = detail::squares_of_block;
    const std::size_t blocks = (x.size() + block - 1) / block;
    std::array<double, 64> partials;
    partials[0] = 0;
    const auto fill = [&](std::size_t number, std::size_t level) {
        const T* const from = x.data() + number * block;
        if ((number + 1) * block <= x.size()) {
            partials[level] = detail::sum_of_squares_of_block(from);
        } else {
            // What is beyond the end adds nothing, as a zero does.
            std::array<T, block> last{};
            std::copy(from, x.data() + x.size(), last.begin());
            partials[level] = detail::sum_of_squares_of_block(last.data());
        }
    };
    tensor::walk(blocks, fill, [&](std::size_t level) { partials[level] += partials[level + 1]; });
    return partials[0];
}

/// The same of n numbers that are not in memory: fill(first, count, x) writes numbers first .. first + count - 1 to x.
template <class T, class Fill>
[[nodiscard]] double sum_of_squares_of(std::size_t n, const Fill& fill) noexcept {
    constexpr std::size_t block = detail::squares_of_block;
    std::array<double, 64> partials;
    partials[0] = 0;
    const auto add_block = [&](std::size_t number, std::size_t level) {
        const std::size_t first = number * block, count = std::min(block, n - first);
        std::array<T, block> x;
        fill(first, count, x.data());
        std::fill(x.data() + count, x.data() + block, T{0});
        partials[level] = detail::sum_of_squares_of_block(x.data());
    };
    tensor::walk((n + block - 1) / block, add_block,
                 [&](std::size_t level) { partials[level] += partials[level + 1]; });
    return partials[0];
}

LOCKSTEP_TEMPLATE(sum_of_squares<float>);

}  // namespace lockstep::kernels
