// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Matrix products: every element is one chain of fused multiply-adds over
// ascending k, whatever the blocking, the threads or the other rows.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/kernels/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

enum class transpose { no, yes };

namespace detail {

/// Cache blocks: a panel of B (depth x tile_columns) stays in the first level, a block of A (rows x depth) in the second.
/// None of them changes a bit: a chain is carried from block to block in C.
template <class T>
struct gemm_blocks {
    static constexpr std::size_t depth = 1024 / sizeof(T);
    static constexpr std::size_t rows = round_up(192, tile_rows);
    static constexpr std::size_t columns = 1024;
    static constexpr std::size_t pad = simd::alignment / sizeof(T);  ///< keeps copied rows out of each other's cache sets

    static constexpr std::size_t a_size(std::size_t m, std::size_t k) noexcept {
        return whole_lines<T>(round_up(std::min(m, rows), tile_rows) * (std::min(k, depth) + pad));
    }
    static constexpr std::size_t b_size(std::size_t n, std::size_t k) noexcept {
        return std::min(k, depth) * round_up(std::min(n, columns), tile_columns<T>);
    }
};

/// Part of the outputs for each thread: `down` x `across` = threads.
struct grid {
    std::size_t down = 1;
    std::size_t across = 1;
};

/// The grid with the least work for the busiest thread; what it packs counts as well. `tall` x `wide` is the tile.
[[nodiscard]] constexpr grid choose_grid(std::size_t m, std::size_t n, std::size_t tall, std::size_t wide, parallel::team team) noexcept {
    const auto threads = static_cast<std::size_t>(team.threads);
    grid best{1, threads};
    std::size_t least = ~std::size_t{0};
    for (std::size_t down = 1; down <= threads; ++down) {
        if (threads % down != 0) continue;
        const std::size_t height = round_up((m + down - 1) / down, tall);
        const std::size_t width = round_up((n + threads / down - 1) / (threads / down), wide);
        const std::size_t cost = height * width + wide * (height + width);
        if (cost < least) {
            least = cost;
            best = {down, threads / down};
        }
    }
    return best;
}

template <class T>
void gemm_block(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a, std::size_t lda, const T* b,
                std::size_t ldb, T* c, std::size_t ldc, bool starts, const T* bias, T* scratch_a, T* scratch_b) noexcept {
    using blocks = gemm_blocks<T>;
    const std::size_t cuts = std::max<std::size_t>(1, (k + blocks::depth - 1) / blocks::depth);
    for (std::size_t j = 0; j < n; j += blocks::columns) {
        const std::size_t wide = std::min(blocks::columns, n - j);
        for (std::size_t cut = 0; cut < cuts; ++cut) {
            const parallel::block links = parallel::split(k, cuts, cut);
            const std::size_t deep = links.size();
            const std::size_t panel_stride = deep * tile_columns<T>;
            if (tb == transpose::no)
                pack<tile_columns<T>>(deep, wide, b + links.first * ldb + j, ldb, scratch_b, panel_stride);
            else
                pack_transposed<tile_columns<T>>(deep, wide, b + j * ldb + links.first, ldb, scratch_b, panel_stride);
            const bool first = starts && cut == 0;
            const T* start = bias ? bias + j : nullptr;
            for (std::size_t i = 0; i < m; i += blocks::rows) {
                const std::size_t high = std::min(blocks::rows, m - i);
                matrix_rows<T> rows{nullptr, 0, c + i * ldc + j, ldc};
                if (ta == transpose::yes) {
                    pack<tile_rows>(deep, high, a + links.first * lda + i, lda, scratch_a, deep * tile_rows);
                    multiply(high, wide, packed_chain<T>{scratch_a, deep}, rows, scratch_b, panel_stride, first, start);
                    continue;
                }
                rows.a = a + i * lda + links.first;
                rows.lda = lda;
                if (wide > 4 * tile_columns<T> && deep >= blocks::pad) {
                    rows.a = scratch_a;
                    rows.lda = deep + blocks::pad;
                    for (std::size_t r = 0; r < high; ++r) std::copy_n(a + (i + r) * lda + links.first, deep, scratch_a + r * rows.lda);
                }
                multiply(high, wide, row_chain{.count = deep, .b_step = tile_columns<T>}, rows, scratch_b, panel_stride, first, start);
            }
        }
    }
}

template <class T>
void gemm_threads(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a, std::size_t lda, const T* b,
                  std::size_t ldb, T* c, std::size_t ldc, bool starts, const T* bias, resources<T> use) noexcept {
    using blocks = gemm_blocks<T>;
    const std::size_t a_size = blocks::a_size(m, k);
    const std::size_t share = a_size + blocks::b_size(n, k);
    const grid parts = choose_grid(m, n, tile_rows, tile_columns<T>, use.team);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block down = parallel::split(m, parts.down, thread / parts.across, tile_rows);
        const parallel::block across = parallel::split(n, parts.across, thread % parts.across, tile_columns<T>);
        if (down.empty() || across.empty()) return;
        T* scratch = use.scratch.data() + thread * share;
        gemm_block(ta, tb, down.size(), across.size(), k, a + down.first * (ta == transpose::no ? lda : 1), lda,
                   b + across.first * (tb == transpose::no ? 1 : ldb), ldb, c + down.first * ldc + across.first, ldc, starts,
                   bias ? bias + across.first : nullptr, scratch, scratch + a_size);
    });
}

}  // namespace detail

/// Elements of scratch for products of at most m x n x k: monotonic in each size.
template <class T>
[[nodiscard]] constexpr std::size_t gemm_scratch(std::size_t m, std::size_t n, std::size_t k, parallel::team team) noexcept {
    using blocks = detail::gemm_blocks<T>;
    return static_cast<std::size_t>(team.threads) * (blocks::a_size(m, k) + blocks::b_size(n, k));
}

/// C = op(A) op(B) + bias, row-major: op(A) is m x k, op(B) is k x n, bias has n entries or is null; C overlaps no operand.
/// c[i][j] = fma(a[i][k-1], b[k-1][j], .. fma(a[i][0], b[0][j], bias[j])): the chain starts from the bias, or from zero.
/// Cost: 2 m n k flops, about n/1024 passes over A and m/192 over a packed copy of B.
template <class T>
void gemm(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a, std::size_t lda, const T* b, std::size_t ldb,
          T* c, std::size_t ldc, const T* bias, resources<T> use) noexcept {
    detail::gemm_threads(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, true, bias, use);
}

/// C += op(A) op(B): the chains start from what C holds.
template <class T>
void gemm_accumulate(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a, std::size_t lda, const T* b,
                     std::size_t ldb, T* c, std::size_t ldc, resources<T> use) noexcept {
    detail::gemm_threads(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, false, static_cast<const T*>(nullptr), use);
}

}  // namespace lockstep::kernels
