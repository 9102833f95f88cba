// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where a rank stands: rank = replica x shards + shard. And which lanes of the minibatch it works on.

#include <cstddef>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/concept.hpp"

namespace lockstep::partition {

/// A rank's place among all ranks.
struct grid {
    std::size_t rank = 0;
    std::size_t ranks = 1;
    std::size_t shards = 1;
    std::size_t lanes = 1;

    [[nodiscard]] constexpr std::size_t replicas() const noexcept { return ranks / shards; }
    [[nodiscard]] constexpr std::size_t replica() const noexcept { return rank / shards; }
    [[nodiscard]] constexpr std::size_t shard() const noexcept { return rank % shards; }
    /// Lanes of any rank: a run of the lanes of its group.
    [[nodiscard]] constexpr parallel::block lanes_of(std::size_t of) const noexcept { return parallel::split(lanes, ranks, of); }
    /// Lanes of all ranks of a model group together.
    [[nodiscard]] constexpr parallel::block lanes_of_replica(std::size_t of) const noexcept {
        return {lanes_of(of * shards).first, lanes_of((of + 1) * shards - 1).last};
    }
    [[nodiscard]] constexpr parallel::block own_lanes() const noexcept { return lanes_of(rank); }
    [[nodiscard]] constexpr parallel::block group_lanes() const noexcept { return lanes_of_replica(replica()); }
};

/// Throws, on all ranks alike, where the ranks do not fill the grid or there are fewer lanes than ranks.
template <Partition P>
[[nodiscard]] grid make_grid(std::size_t rank, std::size_t ranks, std::size_t lanes) {
    constexpr std::size_t cell = P::shards * P::stages;
    if (ranks % cell != 0 || (!P::replicates && ranks != cell))
        core::fail(
            core::text(ranks, ranks == 1 ? " rank does" : " ranks do", " not fill a ", P::name, " partition with ", P::shards, " shards"),
            P::replicates
                ? core::text("start a multiple of ", cell, " ranks")
                : core::text("start ", cell, cell == 1 ? " rank" : " ranks", ", or use a hybrid partition to have several groups"));
    if (lanes < ranks)
        core::fail(core::text(ranks, " ranks share ", lanes, lanes == 1 ? " lane" : " lanes", ", so some would have nothing to do"),
                   core::text("set lanes to at least ", ranks, " (lanes are part of the recipe: another number gives other bits)"));
    return {.rank = rank, .ranks = ranks, .shards = P::shards, .lanes = lanes};
}

}  // namespace lockstep::partition
