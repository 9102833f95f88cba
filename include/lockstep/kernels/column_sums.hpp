// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The bias gradient: sums of columns over the rows in ascending order, alone and over the tree of lanes.

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/kernels/resources.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::kernels {

/// sums[j] = x[0][j] + .. + x[rows-1][j], from left to right and starting from zero; rows are ld apart. One pass over x.
template <class T>
void column_sums(std::size_t rows, std::size_t n, const T* x, std::size_t ld, T* sums) noexcept {
    constexpr std::size_t wide = 4 * simd::width<T>;
    std::size_t j = 0;
    for (; j + wide <= n; j += wide) {
        simd::batch<T> sum[4] = {simd::batch<T>(T{0}), simd::batch<T>(T{0}), simd::batch<T>(T{0}), simd::batch<T>(T{0})};
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t v = 0; v < 4; ++v) sum[v] = sum[v] + simd::load(x + r * ld + j + v * simd::width<T>);
        for (std::size_t v = 0; v < 4; ++v) simd::store(sums + j + v * simd::width<T>, sum[v]);
    }
    if (j == n) return;
    std::fill(sums + j, sums + n, T{0});
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t q = j; q < n; ++q) sums[q] += x[r * ld + q];
}

/// Elements of scratch of column_sums_lanes, for at most so many lanes.
template <class T>
[[nodiscard]] constexpr std::size_t column_sums_lanes_scratch(std::size_t lanes, std::size_t n, parallel::team) noexcept {
    return tensor::tree_depth(lanes) * n;
}

/// db (n) = column sums of dY over the consecutive lanes of one subtree, added over its tree; dY is rows x n, rows lddy apart. No lanes: zeros.
template <class T>
void column_sums_lanes(std::span<const parallel::block> lanes, std::size_t n, const T* dy, std::size_t lddy, T* db,
                       resources<T> use) noexcept {
    if (lanes.empty()) {
        std::fill_n(db, n, T{0});
        return;
    }
    const auto partial = [&](std::size_t level, std::size_t j) { return use.scratch.data() + level * n + j; };
    parallel::for_blocks(use.team, n, simd::alignment / sizeof(T), [&](parallel::block mine) {
        tensor::walk(
            lanes.size(),
            [&](std::size_t lane, std::size_t level) {
                column_sums(lanes[lane].size(), mine.size(), dy + lanes[lane].first * lddy + mine.first, lddy, partial(level, mine.first));
            },
            [&](std::size_t level) {
                simd::map(
                    mine.size(), [](const simd::batch<T>& right, simd::batch<T>& left) { left = left + right; },
                    static_cast<const T*>(partial(level + 1, mine.first)), partial(level, mine.first));
            });
        std::copy_n(partial(0, mine.first), mine.size(), db + mine.first);
    });
}

}  // namespace lockstep::kernels
