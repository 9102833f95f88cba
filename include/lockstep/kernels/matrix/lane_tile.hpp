// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The register tile of a product whose links are dealt to lanes: the tree over the lanes is walked inside of the tile.
// Tested by tests/unit/kernels/matrix/gemm_lanes.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/kernels/matrix/matrix_tile.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::kernels::detail {

/// How far the walk over the lanes has come: whole lanes done, rows of the next one done, partial sums held.
struct lane_position {
    std::size_t lane = 0;
    std::size_t row = 0;
    std::size_t held = 0;
};

/// The rest of a walk over lanes, of which a tile takes as many links as it has.
struct lane_stretch {
    std::span<const parallel::block> lanes;
    lane_position begin;

    /// Where the walk stands `links` later. Lanes without rows that follow belong to what is done.
    [[nodiscard]] lane_position after(std::size_t links) const noexcept {
        lane_position at = begin;
        while (at.lane < lanes.size()) {
            const std::size_t piece = std::min(links, lanes[at.lane].size() - at.row);
            links -= piece;
            at.row += piece;
            if (at.row < lanes[at.lane].size()) break;
            at.row = 0;
            ++at.held;
            for (std::size_t carry = ++at.lane; (carry & 1) == 0; carry >>= 1) --at.held;
        }
        return at;
    }
};

/// Sums that are held of one tile: one for each level of the tree, and one that is under way.
[[nodiscard]] constexpr std::size_t held_sums(std::size_t lanes) noexcept { return tensor::tree_depth(lanes) + 1; }

/// Tiles of A whose elements for one link lie side by side, packed or in a transposed matrix. Where links are dealt to
/// lanes, the chain of a lane runs in registers, finished nodes of the tree are added to it as the carries of a binary
/// counter ask for, and only what has to wait for its sibling is stored, in task.held. The last stretch leaves the sum
/// over all lanes in task.to.
///     links      lane 0   lane 1    lane 2    lane 3
///     register   s0       s1 + s0   s2        (s3 + s2) + s01
///     held       s0       s01       s01, s2   -
template <class T, std::size_t Height>
void run_tiles(const tile_task<T>& task) noexcept {
    using batch = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    const std::size_t level = task.held_level;
    const std::span<const parallel::block> lanes = task.stretch->lanes;
    const std::size_t a_link = task.a_link;
    const std::size_t a_ahead = 16 * a_link;
    const std::size_t ldb = task.ldb;
    const std::size_t b_second = task.b_second;
    const T* first = task.a;
    const T* from = task.from;
    T* to = task.to;
    T* held = task.held;
    std::size_t wait = task.walk->wait;
    for (std::size_t tile = task.tiles; tile > 0; --tile) {
        batch sum[Height][tile_vectors];
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Height; ++i) {
            sum[i][0] = simd::load(from + i * task.from_ld);
            sum[i][1] = simd::load(from + i * task.from_ld + task.from_second);
        }
        from += task.from_tile;
        // Loops in place of a function of the accumulators: those stay in registers, and each height costs little to
        // compile.
        const auto keep = [&](T* at) LOCKSTEP_FLATTEN {
            LOCKSTEP_UNROLL
            for (std::size_t i = 0; i < Height; ++i) {
                simd::store(at + i * tile_columns<T>, sum[i][0]);
                simd::store(at + i * tile_columns<T> + width, sum[i][1]);
            }
        };
        const T* a = first;
        const T* b = task.b;
        end_lines<T> lines{to, from, task.fetches ? Height : 0};
        lane_position at = task.stretch->begin;
        std::size_t left = task.links;
        T* top = held + at.held * level;  // where the next sum that waits is put
        while (true) {
            const std::size_t size = lanes[at.lane].size();
            const std::size_t piece = std::min(left, size - at.row);
            run_links<Height>(task, piece, wait, lines, [&](auto count) LOCKSTEP_FLATTEN {
                unroll<count>([&](auto) LOCKSTEP_FLATTEN {
                    if constexpr (simd::registers > 16) __builtin_prefetch(a + a_ahead, 0, 3);
                    const auto element = [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return a[i]; };
                    add_link(sum, b, b_second, element);
                    advance(b, ldb);
                    advance(a, a_link);
                });
            });
            left -= piece;
            at.row += piece;
            if (at.row < size) {
                keep(top);
                break;
            }
            at.row = 0;
            // As many sums as the carries of a binary counter ask for; all that wait, where the lanes are over.
            const bool ends = ++at.lane == lanes.size();
            for (std::size_t carry = at.lane; ends ? top > held : (carry & 1) == 0; carry >>= 1) {
                top -= level;
                LOCKSTEP_UNROLL
                for (std::size_t i = 0; i < Height; ++i) {
                    sum[i][0] = simd::load(top + i * tile_columns<T>) + sum[i][0];
                    sum[i][1] = simd::load(top + i * tile_columns<T> + width) + sum[i][1];
                }
            }
            if (ends) {
                if (task.streams) {
                    LOCKSTEP_UNROLL
                    for (std::size_t i = 0; i < Height; ++i) {
                        simd::stream(to + i * task.to_ld, sum[i][0]);
                        simd::stream(to + i * task.to_ld + width, sum[i][1]);
                    }
                    break;
                }
                LOCKSTEP_UNROLL
                for (std::size_t i = 0; i < Height; ++i) {
                    simd::store(to + i * task.to_ld, sum[i][0]);
                    simd::store(to + i * task.to_ld + task.to_second, sum[i][1]);
                }
                break;
            }
            keep(top);
            top += level;
            LOCKSTEP_UNROLL
            for (std::size_t i = 0; i < Height; ++i) sum[i][0] = sum[i][1] = batch(T{0});
            if (left == 0 && lanes[at.lane].size() > 0) break;
        }
        first += task.a_tile;
        to += Height * task.to_ld;
        held += task.held_tile;
    }
    task.walk->wait = wait;
}

template <class T>
inline constexpr auto tile_kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<tile_kernel<T>, tile_rows>{&run_tiles<T, I + 1>...};
}
(std::make_index_sequence<tile_rows>{});

}  // namespace lockstep::kernels::detail
