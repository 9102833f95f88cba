// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The weight gradient of a dense layer over lanes: the lane tree is walked inside the register tile, so the gradient is written once.

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/kernels/gemm.hpp"
#include "lockstep/kernels/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/kernels/tile.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::kernels {

namespace detail {

/// How far the walk over the lanes has come: whole lanes done, rows of the next one done, partial sums held.
struct lane_position {
    std::size_t lane = 0;
    std::size_t row = 0;
    std::size_t held = 0;
};

/// Rows of the lanes from `at` on, at most `limit`.
[[nodiscard]] inline std::size_t rows_ahead(std::span<const parallel::block> lanes, const lane_position& at, std::size_t limit) noexcept {
    std::size_t rows = 0;
    for (std::size_t lane = at.lane; lane < lanes.size() && rows < limit; ++lane)
        rows += lanes[lane].size() - (lane == at.lane ? at.row : 0);
    return std::min(rows, limit);
}

/// Calls f(first row, rows) for the pieces of lanes that make up the next `rows` rows.
template <class F>
void for_pieces(std::span<const parallel::block> lanes, lane_position at, std::size_t rows, F&& f) noexcept {
    for (; rows > 0; ++at.lane, at.row = 0) {
        const std::size_t piece = std::min(rows, lanes[at.lane].size() - at.row);
        if (piece > 0) f(lanes[at.lane].first + at.row, piece);
        rows -= piece;
    }
}

/// A stretch of `rows` packed rows, from a position of the walk on. Lanes without rows that follow the stretch belong to it.
template <class T>
struct lane_chain {
    std::span<const parallel::block> lanes;
    lane_position begin;
    std::size_t rows = 0;
    const T* panels = nullptr;  ///< of X
    T* partials = nullptr;      ///< sums held between tree levels, and between stretches
    std::size_t partial_stride = 0;
    bool last = true;

    static constexpr std::size_t tile_size = tile_rows * tile_columns<T>;

    /// Where the walk stands behind this stretch.
    [[nodiscard]] lane_position end() const noexcept {
        lane_position at = begin;
        std::size_t left = rows;
        while (at.lane < lanes.size()) {
            const std::size_t piece = std::min(left, lanes[at.lane].size() - at.row);
            left -= piece;
            at.row += piece;
            if (at.row < lanes[at.lane].size()) break;
            at.row = 0;
            ++at.held;
            for (std::size_t carry = ++at.lane; (carry & 1) == 0; carry >>= 1) --at.held;
        }
        return at;
    }

    /// One tile: leaves the finished sum in c if this is the last stretch. A lane's chain runs in registers, finished nodes of the tree are
    /// added to it as the carries of a binary counter ask for, and only what has to wait for its sibling is stored.
    template <std::size_t Rows, std::size_t Vectors>
    void run(const T* a, const T* b, T* held, T* const* c) const noexcept {
        accumulators<T, Rows, Vectors> tile;
        lane_position at = begin;
        std::size_t left = rows;
        T* top = held + at.held * tile_size;  // where the next sum that waits is put
        tile.clear();
        if (at.row > 0) tile.load_tile(top);
        while (at.lane < lanes.size()) {
            const std::size_t piece = std::min(left, lanes[at.lane].size() - at.row);
            for (std::size_t p = 0; p < piece; ++p, a += tile_rows, b += tile_columns<T>)
                tile.step(b, [&](auto i) LOCKSTEP_FLATTEN { return a[i]; });
            left -= piece;
            at.row += piece;
            if (at.row < lanes[at.lane].size()) break;
            at.row = 0;
            for (std::size_t carry = ++at.lane; (carry & 1) == 0; carry >>= 1) tile.add_to_tile(top -= tile_size);
            if (at.lane == lanes.size()) {
                while (top > held) tile.add_to_tile(top -= tile_size);
                tile.store(c);
                return;
            }
            tile.store_tile(top);
            top += tile_size;
            tile.clear();
        }
        tile.store_tile(top);
    }
};

template <class T>
struct lane_blocks {
    static constexpr std::size_t depth = 2048 / sizeof(T);  ///< rows of a stretch
    static constexpr std::size_t rows = round_up(96, tile_rows);
    static constexpr std::size_t columns = 256;

    static constexpr std::size_t a_size(std::size_t k) noexcept { return whole_lines<T>(rows * std::min(k, depth)); }
    static constexpr std::size_t b_size(std::size_t k) noexcept { return columns * std::min(k, depth); }
    /// One tile's partial sums while all rows fit one stretch, else those of every tile of the block.
    static constexpr std::size_t partial_size(std::size_t lanes, std::size_t k) noexcept {
        const std::size_t tiles = k > depth ? (rows / tile_rows) * ((columns + tile_columns<T> - 1) / tile_columns<T>) : 1;
        return tiles * (tensor::tree_depth(lanes) + 1) * lane_chain<T>::tile_size;
    }
    static constexpr std::size_t share(std::size_t lanes, std::size_t k) noexcept { return a_size(k) + b_size(k) + partial_size(lanes, k); }
};

template <class T>
void multiply_lanes(std::size_t m, std::size_t n, const lane_chain<T>& chain, const T* panels_b, T* dw, std::size_t lddw) noexcept {
    constexpr std::size_t columns = tile_columns<T>;
    alignas(simd::alignment) T buffer[tile_rows * columns];
    T* held = chain.partials;
    for (std::size_t j = 0; j < n; j += columns) {
        const std::size_t wide = std::min(columns, n - j);
        const T* b = panels_b + j * chain.rows;
        for (std::size_t i = 0; i < m; i += tile_rows, held += chain.partial_stride) {
            const std::size_t high = std::min(tile_rows, m - i);
            const bool whole = wide == columns;
            T* into[tile_rows];
            for (std::size_t r = 0; r < tile_rows; ++r) into[r] = whole && r < high ? dw + (i + r) * lddw + j : buffer + r * columns;
            const T* a = chain.panels + i * chain.rows;
            with_height<tile_rows>(high, [&](auto height) {
                if (wide <= simd::width<T>)
                    chain.template run<height, 1>(a, b, held, into);
                else
                    chain.template run<height, tile_vectors>(a, b, held, into);
            });
            if (!whole && chain.last)
                for (std::size_t r = 0; r < high; ++r) std::copy_n(into[r], wide, dw + (i + r) * lddw + j);
        }
    }
}

/// One block of dW that belongs to one thread.
template <class T>
void gemm_lanes_block(std::span<const parallel::block> lanes, std::size_t rows, std::size_t m, std::size_t n, const T* x, std::size_t ldx,
                      const T* dy, std::size_t lddy, T* dw, std::size_t lddw, T* scratch) noexcept {
    using blocks = lane_blocks<T>;
    const bool single = rows <= blocks::depth;
    lane_chain<T> chain;
    chain.lanes = lanes;
    T* const a = scratch;
    T* const b = a + blocks::a_size(rows);
    chain.panels = a;
    chain.partials = b + blocks::b_size(rows);
    chain.partial_stride = single ? 0 : (tensor::tree_depth(lanes.size()) + 1) * lane_chain<T>::tile_size;
    const auto pack_x = [&](std::size_t i, std::size_t high) {
        std::size_t done = 0;
        for_pieces(lanes, chain.begin, chain.rows, [&](std::size_t row, std::size_t piece) {
            pack<tile_rows>(piece, high, x + row * ldx + i, ldx, a + done * tile_rows, chain.rows * tile_rows);
            done += piece;
        });
    };
    const auto pack_dy = [&](std::size_t j, std::size_t wide) {
        std::size_t done = 0;
        for_pieces(lanes, chain.begin, chain.rows, [&](std::size_t row, std::size_t piece) {
            pack<tile_columns<T>>(piece, wide, dy + row * lddy + j, lddy, b + done * tile_columns<T>, chain.rows * tile_columns<T>);
            done += piece;
        });
    };
    for (std::size_t j = 0; j < n; j += blocks::columns) {
        const std::size_t wide = std::min(blocks::columns, n - j);
        if (single) {
            chain.rows = rows;
            pack_dy(j, wide);
        }
        for (std::size_t i = 0; i < m; i += blocks::rows) {
            const std::size_t high = std::min(blocks::rows, m - i);
            for (chain.begin = {}, chain.last = false; !chain.last;) {
                chain.rows = rows_ahead(lanes, chain.begin, blocks::depth);
                const lane_position end = chain.end();
                chain.last = end.lane == lanes.size();
                pack_x(i, high);
                if (!single) pack_dy(j, wide);
                multiply_lanes(high, wide, chain, b, dw + i * lddw + j, lddw);
                chain.begin = end;
            }
            chain.begin = {};
        }
    }
}

}  // namespace detail

/// Elements of scratch for at most so many lanes, rows in all of them, and m x n weights: monotonic in each.
template <class T>
[[nodiscard]] constexpr std::size_t gemm_lanes_scratch(std::size_t lanes, std::size_t rows, std::size_t, std::size_t,
                                                       parallel::team team) noexcept {
    return static_cast<std::size_t>(team.threads) * detail::lane_blocks<T>::share(lanes, rows);
}

/// dW (m x n, rows lddw apart) = sum of X^T dY over the consecutive lanes
/// of one subtree, added over its tree; X is rows x m, dY is rows x n,
/// a lane is a run of their rows. Bits: those of one gemm for each lane, added by tensor::walk. No lanes: zeros.
/// Cost: 2 rows m n flops; dW is written once and not read.
template <class T>
void gemm_lanes(std::span<const parallel::block> lanes, std::size_t m, std::size_t n, const T* x, std::size_t ldx, const T* dy,
                std::size_t lddy, T* dw, std::size_t lddw, resources<T> use) noexcept {
    std::size_t rows = 0;
    for (const parallel::block& lane : lanes) rows += lane.size();
    if (rows == 0) {
        for (std::size_t i = 0; i < m; ++i) std::fill_n(dw + i * lddw, n, T{0});
        return;
    }
    const detail::grid parts = detail::choose_grid(m, n, detail::tile_rows, detail::tile_columns<T>, use.team);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block down = parallel::split(m, parts.down, thread / parts.across, detail::tile_rows);
        const parallel::block across = parallel::split(n, parts.across, thread % parts.across, detail::tile_columns<T>);
        if (down.empty() || across.empty()) return;
        detail::gemm_lanes_block(lanes, rows, down.size(), across.size(), x + down.first, ldx, dy + across.first, lddy,
                                 dw + down.first * lddw + across.first, lddw,
                                 use.scratch.data() + thread * detail::lane_blocks<T>::share(lanes.size(), rows));
    });
}

}  // namespace lockstep::kernels
