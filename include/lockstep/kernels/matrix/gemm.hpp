// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Matrix products: every element is one chain of fused multiply-adds over
// ascending k, whatever the blocking, the threads or the other rows.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/block_product.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

namespace detail {

/// Part of the outputs for each thread: `down` x `across` = threads.
struct grid {
    std::size_t down = 1;
    std::size_t across = 1;
};

/// The grid with the least work for the busiest thread; what it packs counts as well. `tall` x `wide` is the tile.
[[nodiscard]] constexpr grid choose_grid(std::size_t m, std::size_t n, std::size_t tall, std::size_t wide,
                                         parallel::team team) noexcept {
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
void gemm_threads(const product<T>& all, resources<T> use) noexcept {
    if (use.team.threads == 1) return block_product<T>(all, use.scratch.data()).run();
    const std::size_t share = gemm_blocks<T>::share(all.m, all.n, all.k);
    const grid parts = choose_grid(all.m, all.n, tile_rows, tile_columns<T>, use.team);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block down = parallel::split(all.m, parts.down, thread / parts.across, tile_rows);
        const parallel::block across = parallel::split(all.n, parts.across, thread % parts.across, tile_columns<T>);
        if (down.empty() || across.empty()) return;
        product<T> mine = all;
        mine.m = down.size();
        mine.n = across.size();
        mine.a += down.first * (all.ta == transpose::no ? all.lda : 1);
        mine.b += across.first * (all.tb == transpose::no ? 1 : all.ldb);
        mine.c += down.first * all.ldc + across.first;
        if (mine.bias) mine.bias += across.first;
        block_product<T>(mine, use.scratch.data() + thread * share).run();
    });
}

}  // namespace detail

/// Elements of scratch for products of at most m x n x k: monotonic in each size.
template <class T>
[[nodiscard]] constexpr std::size_t gemm_scratch(std::size_t m, std::size_t n, std::size_t k,
                                                 parallel::team team) noexcept {
    return static_cast<std::size_t>(team.threads) * detail::gemm_blocks<T>::share(m, n, k);
}

/// C = op(A) op(B) + bias, row-major: op(A) is m x k, op(B) is k x n, bias has n entries or is null; C overlaps no
/// operand. c[i][j] = fma(a[i][k-1], b[k-1][j], .. fma(a[i][0], b[0][j], bias[j])): the chain starts from the bias, or
/// from zero. Edges of tiles run the same instructions: the last two vectors of a row overlap and hold the same chains
/// twice (see matrix_tile.hpp); in a small product the last vector has a mask (see near_product.hpp). So no bit depends
/// on the position of an element in a tile. Cost: 2 m n k flops; A is copied n/1024 times at most, B once.
template <class T>
void gemm(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a, std::size_t lda,
          const T* b, std::size_t ldb, T* c, std::size_t ldc, const T* bias, resources<T> use) noexcept {
    detail::gemm_threads<T>({ta, tb, m, n, k, a, lda, b, ldb, c, ldc, true, bias}, use);
}

/// C += op(A) op(B): the chains start from what C holds.
template <class T>
void gemm_accumulate(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a,
                     std::size_t lda, const T* b, std::size_t ldb, T* c, std::size_t ldc, resources<T> use) noexcept {
    detail::gemm_threads<T>({ta, tb, m, n, k, a, lda, b, ldb, c, ldc, false, nullptr}, use);
}

LOCKSTEP_TEMPLATE(detail::gemm_threads<float>);

}  // namespace lockstep::kernels
