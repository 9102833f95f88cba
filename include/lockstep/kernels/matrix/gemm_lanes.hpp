// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The weight gradient of a dense layer over lanes: the lane tree is walked inside the register tile, so the gradient is
// written once.

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/block_product.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

/// Elements of scratch for at most so many lanes, rows in all of them, and m x n weights: monotonic in each.
template <class T>
[[nodiscard]] constexpr std::size_t gemm_lanes_scratch(std::size_t lanes, std::size_t rows, std::size_t m,
                                                       std::size_t n, parallel::team team) noexcept {
    return static_cast<std::size_t>(team.threads) * detail::gemm_blocks<T>::lane_share(lanes, m, n, rows);
}

/// dW (m x n, rows lddw apart) = sum of X^T dY over the consecutive lanes
/// of one subtree, added over its tree; X is rows x m, dY is rows x n,
/// a lane is a run of their rows, right after that of the lane before. Bits: those of one gemm for each lane, added by
/// tensor::walk. No lanes: zeros. Cost: 2 rows m n flops; dW is written once and not read. A buffer of dW for each lane
/// would move that many times the weights through memory. Layers with few weights use pass.each_lane, with a buffer for
/// each level of the tree.
template <class T>
void gemm_lanes(std::span<const parallel::block> lanes, std::size_t m, std::size_t n, const T* x, std::size_t ldx,
                const T* dy, std::size_t lddy, T* dw, std::size_t lddw, resources<T> use) noexcept {
    std::size_t rows = 0;
    for (const parallel::block& lane : lanes) rows += lane.size();
    if (rows == 0) {
        for (std::size_t i = 0; i < m; ++i) std::fill_n(dw + i * lddw, n, T{0});
        return;
    }
    const detail::grid parts = detail::choose_grid(m, n, detail::tile_rows, detail::tile_columns<T>, use.team);
    const std::size_t share = detail::gemm_blocks<T>::lane_share(lanes.size(), m, n, rows);
    x += lanes.front().first * ldx;
    dy += lanes.front().first * lddy;
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block down = parallel::split(m, parts.down, thread / parts.across, detail::tile_rows);
        const parallel::block across = parallel::split(n, parts.across, thread % parts.across, detail::tile_columns<T>);
        if (down.empty() || across.empty()) return;
        const detail::product<T> mine{transpose::yes,
                                      transpose::no,
                                      down.size(),
                                      across.size(),
                                      rows,
                                      x + down.first,
                                      ldx,
                                      dy + across.first,
                                      lddy,
                                      dw + down.first * lddw + across.first,
                                      lddw,
                                      true,
                                      nullptr};
        detail::block_product<T>(mine, use.scratch.data() + thread * share, lanes).run();
    });
}

LOCKSTEP_TEMPLATE(gemm_lanes<float>);

}  // namespace lockstep::kernels
