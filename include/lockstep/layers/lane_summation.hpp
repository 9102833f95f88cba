// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a layer adds what its lanes give, gradients or statistics: over the fixed tree, by all threads together or each
// for lanes of its own.
// Tested by tests/unit/layers/pass.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::layer_api {

/// Adds `Count` numbers for each lane over the fixed tree: f(rows, to) fills those of one lane. Node i of lanes.trees()
/// gets its sum at sums + i stride. `partials` has room for tree_depth(lanes) times `Count` numbers.
template <std::size_t Count, class T, class F>
void add_lanes(const tensor::lane_set& lanes, T* sums, std::size_t stride, T* partials, parallel::team team, F&& f) {
    for (std::size_t index = 0; index < lanes.trees().size(); ++index) {
        const auto rows = lanes.blocks(lanes.trees()[index]);
        const auto partial = [&](std::size_t level) {
            return level == 0 ? sums + index * stride : partials + (level - 1) * Count;
        };
        tensor::walk(
            rows.size(), [&](std::size_t lane, std::size_t level) { f(rows[lane], partial(level)); },
            [&](std::size_t level) {
                parallel::for_blocks(team, Count, 4096, [&](parallel::block part) {
                    kernels::add(std::span<const T>{partial(level + 1) + part.first, part.size()},
                                 std::span<T>{partial(level) + part.first, part.size()});
                });
            });
    }
}

/// Of a convolution: of a larger gradient all threads compute the parts.
inline constexpr std::size_t most_dealt_weights = 65536;
/// Whether threads take lanes of their own, rather than parts of each: where all get about as many.
[[nodiscard]] constexpr bool threads_take_lanes(std::size_t lanes, parallel::team team) noexcept {
    const auto threads = static_cast<std::size_t>(team.threads);
    return threads > 1 && lanes >= threads && 4 * lanes >= 3 * threads * ((lanes + threads - 1) / threads);
}

/// Gradients, or statistics, of one lane that are kept while so many are added: one for each level of the tree, or one
/// for each lane where threads may take lanes of their own.
[[nodiscard]] constexpr std::size_t kept_lanes(std::size_t lanes, parallel::team team) noexcept {
    const std::size_t depth = tensor::tree_depth(lanes);
    return team.threads > 1 && lanes >= static_cast<std::size_t>(team.threads) ? std::max(lanes, depth) : depth;
}

/// Elements of scratch for all threads, of which each takes `share` for a lane of its own: whole cache lines.
template <class T>
[[nodiscard]] constexpr std::size_t dealt_scratch(std::size_t share, std::size_t lanes, parallel::team team) noexcept {
    constexpr std::size_t line = simd::alignment / sizeof(T);
    return team.threads > 1 && lanes >= static_cast<std::size_t>(team.threads)
               ? static_cast<std::size_t>(team.threads) * ((share + line - 1) / line * line)
               : 0;
}
/// What thread `thread` of `use` has for a lane of its own.
template <class T>
[[nodiscard]] kernels::resources<T> dealt_part(const kernels::resources<T>& use, std::size_t thread) noexcept {
    constexpr std::size_t line = simd::alignment / sizeof(T);
    const std::size_t share = use.scratch.size() / static_cast<std::size_t>(use.team.threads) / line * line;
    return {{1}, use.scratch.subspan(thread * share, share)};
}

/// add_lanes() where each thread takes lanes of its own: f(rows, to, thread). `partials` has room for kept_lanes(lanes,
/// team) times `Count` numbers.
template <std::size_t Count, class T, class F>
void add_dealt_lanes(const tensor::lane_set& lanes, T* sums, std::size_t stride, T* partials, parallel::team team,
                     F&& f) noexcept {
    const std::span<const tensor::subtree> trees = lanes.trees();
    const auto place = [&](std::size_t lane) {
        for (std::size_t index = 0; index < trees.size(); ++index)
            if (trees[index].first - lanes.lanes().first == lane) return sums + index * stride;
        return partials + lane * Count;
    };
    parallel::on_each_thread(team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(lanes.count(), static_cast<std::size_t>(team.threads), thread);
        for (std::size_t lane = mine.first; lane < mine.last; ++lane) f(lanes.blocks()[lane], place(lane), thread);
    });
    parallel::for_blocks(team, Count, 4096, [&](parallel::block part) {
        std::array<T*, tensor::tree_depth(~std::size_t{0})> held;
        for (const tensor::subtree& tree : trees)
            tensor::walk(
                tree.count,
                [&](std::size_t lane, std::size_t level) {
                    held[level] = place(tree.first - lanes.lanes().first + lane) + part.first;
                },
                [&](std::size_t level) {
                    kernels::add(std::span<const T>{held[level + 1], part.size()},
                                 std::span<T>{held[level], part.size()});
                });
    });
}

}  // namespace lockstep::layer_api
