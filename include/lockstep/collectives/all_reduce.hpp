// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The invariant all-reduce: the tree's reduce-scatter, then an all-gather of the strips.

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/concept.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// tree_reduce_scatter() and all_gather() over the same strips. Cost per rank: the sum of both; with aligned lanes on a
/// power of two of ranks 2 log2(p) messages, 2n(p-1)/p elements.
[[nodiscard]] inline schedule lane_tree_sum(std::size_t rank, std::span<const parallel::block> lanes, std::size_t n,
                                            std::span<const parallel::block> strips,
                                            tree_route route = tree_route::automatic) {
    return schedule{tree_reduce_scatter(rank, lanes, n, strips, route)}.then(all_gather(rank, strips));
}

/// The sum over all lanes, with the same bits on every rank and for every number of ranks. Models AllReduce.
/// Before: data holds one n-vector for each node of the rank's lanes. After: data[0, n) is the sum.
struct tree_all_reduce {
    static constexpr std::string_view name = "tree all-reduce";
    static constexpr bool invariant = true;

    std::size_t lanes = 8;
    tree_route route = tree_route::automatic;

    [[nodiscard]] std::size_t data_size(std::size_t rank, std::size_t ranks, std::size_t n) const {
        return tree_data_size(parallel::split(lanes, ranks, rank), lanes, n);
    }

    [[nodiscard]] schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        const auto runs = deal_lanes(ranks, lanes);
        return lane_tree_sum(rank, runs, n, tree_strips(runs, n), route);
    }
};
static_assert(AllReduce<tree_all_reduce>);

}  // namespace lockstep::collectives
