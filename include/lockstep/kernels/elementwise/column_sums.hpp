// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The bias gradient: sums of columns over the rows in ascending order, alone and over the tree of lanes.

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/simd/part.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::kernels {

namespace detail {

/// sums[j] = sums[j] + x[0][j] + .. + x[rows-1][j], from left to right.
template <class T>
void continue_column_sums(std::size_t rows, std::size_t n, const T* x, std::size_t ld, T* sums) noexcept {
    using batch = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    std::size_t j = 0;
    for (; j + 4 * width <= n; j += 4 * width) {
        batch a = simd::load(sums + j);
        batch b = simd::load(sums + j + width);
        batch c = simd::load(sums + j + 2 * width);
        batch d = simd::load(sums + j + 3 * width);
        for (std::size_t r = 0; r < rows; ++r) {
            const T* from = x + r * ld + j;
            a = a + simd::load(from);
            b = b + simd::load(from + width);
            c = c + simd::load(from + 2 * width);
            d = d + simd::load(from + 3 * width);
        }
        simd::store(sums + j, a);
        simd::store(sums + j + width, b);
        simd::store(sums + j + 2 * width, c);
        simd::store(sums + j + 3 * width, d);
    }
    for (; j + width <= n; j += width) {
        batch sum = simd::load(sums + j);
        for (std::size_t r = 0; r < rows; ++r) sum = sum + simd::load(x + r * ld + j);
        simd::store(sums + j, sum);
    }
    if (j == n) return;
    batch sum = simd::load_first(sums + j, n - j);
    for (std::size_t r = 0; r < rows; ++r) sum = sum + simd::load_first(x + r * ld + j, n - j);
    simd::store_first(sums + j, sum, n - j);
}

}  // namespace detail

/// sums[j] = x[0][j] + .. + x[rows-1][j], from left to right and starting from zero; rows are ld apart. One pass over
/// x.
template <class T>
void column_sums(std::size_t rows, std::size_t n, const T* x, std::size_t ld, T* sums) noexcept {
    std::fill_n(sums, n, T{0});
    detail::continue_column_sums(rows, n, x, ld, sums);
}

/// Elements of scratch of column_sums_lanes, for at most so many lanes.
template <class T>
[[nodiscard]] constexpr std::size_t column_sums_lanes_scratch(std::size_t lanes, std::size_t n,
                                                              parallel::team) noexcept {
    return tensor::tree_depth(lanes) * n;
}

/// db (n) = column sums of dY over the consecutive lanes of one subtree, added over its tree; dY is rows x n, rows lddy
/// apart. No lanes: zeros.
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
                column_sums(lanes[lane].size(), mine.size(), dy + lanes[lane].first * lddy + mine.first, lddy,
                            partial(level, mine.first));
            },
            [&](std::size_t level) {
                simd::map(
                    mine.size(), [](const simd::batch<T>& right, simd::batch<T>& left) { left = left + right; },
                    static_cast<const T*>(partial(level + 1, mine.first)), partial(level, mine.first));
            });
        std::copy_n(partial(0, mine.first), mine.size(), db + mine.first);
    });
}

LOCKSTEP_TEMPLATE(column_sums<float>);
LOCKSTEP_TEMPLATE(column_sums_lanes<float>);

}  // namespace lockstep::kernels
