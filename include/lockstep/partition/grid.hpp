// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where a rank stands: rank = replica x ranks of a group + shard or stage. And which lanes of the minibatch it works
// on.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/concept.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::partition {

/// What a rank, or a group of ranks with one network, holds of the workers: whole ones, or one of which it is part
/// `index` of `count`.
struct worker_part {
    parallel::block workers;  ///< first and last + 1
    std::size_t index = 0;    ///< of the part, where several share one
    std::size_t count = 1;    ///< of parts
};

/// A rank's place among all ranks.
struct grid {
    std::size_t rank = 0;    ///< this one, from 0
    std::size_t ranks = 1;   ///< all of them
    std::size_t shards = 1;  ///< ranks of a model group
    std::size_t lanes =
        1;  ///< of the tree; with workers a power of two for each, of which the last ones may have no rows
    std::size_t workers = 0;       ///< owners of state of their own (residuals, say); 0: nothing has such state
    std::size_t recipe_lanes = 0;  ///< with workers: the lanes that rows are dealt to
    std::size_t stages = 1;        ///< ranks of a pipeline

    /// Ranks that have one network together: a model group, or a pipeline.
    [[nodiscard]] constexpr std::size_t group_size() const noexcept { return shards * stages; }
    /// How many whole networks there are.
    [[nodiscard]] constexpr std::size_t replicas() const noexcept { return ranks / group_size(); }
    /// Which of them this rank has a part of.
    [[nodiscard]] constexpr std::size_t replica() const noexcept { return rank / group_size(); }
    /// Which part it has of the layers that a model partition cuts.
    [[nodiscard]] constexpr std::size_t shard() const noexcept { return rank % shards; }
    /// Which run of the layers it has in a pipeline.
    [[nodiscard]] constexpr std::size_t stage() const noexcept { return rank % group_size() / shards; }
    /// Whether its stage neither begins nor ends a pipeline.
    [[nodiscard]] constexpr bool is_between() const noexcept { return stage() > 0 && stage() + 1 < stages; }
    /// The replicas of this rank's stage, as ranks that train its layers by data parallelism: those of a group are one.
    [[nodiscard]] constexpr grid of_stage() const noexcept {
        grid out = *this;
        if (stages > 1) {
            out.rank = replica();
            out.ranks = replicas();
            out.stages = 1;
        }
        return out;
    }
    /// Lanes of any rank: a run of the lanes of its group.
    [[nodiscard]] constexpr parallel::block lanes_of(std::size_t of) const noexcept {
        if (workers == 0) return parallel::split(lanes, ranks, of);
        const worker_part part = part_of(of);
        const std::size_t each = worker_lanes();
        if (part.count == 1) return {part.workers.first * each, part.workers.last * each};
        const std::size_t first = part.workers.first * each;
        const auto rows =
            parallel::split(parallel::split(recipe_lanes, workers, part.workers.first).size(), part.count, part.index);
        return {first + rows.first, first + (part.index + 1 == part.count ? each : rows.last)};
    }
    /// Lanes of all ranks of a group together.
    [[nodiscard]] constexpr parallel::block lanes_of_replica(std::size_t of) const noexcept {
        return {lanes_of(of * group_size()).first, lanes_of((of + 1) * group_size() - 1).last};
    }
    /// Lanes of this rank.
    [[nodiscard]] constexpr parallel::block own_lanes() const noexcept { return lanes_of(rank); }
    /// Lanes of its group.
    [[nodiscard]] constexpr parallel::block group_lanes() const noexcept { return lanes_of_replica(replica()); }

    /// Lanes of the tree of one worker, a power of two; 0 without workers.
    [[nodiscard]] constexpr std::size_t worker_lanes() const noexcept { return workers == 0 ? 0 : lanes / workers; }
    /// How many of the recipe's lanes, those that rows are dealt to, lie before this lane of the tree.
    [[nodiscard]] constexpr std::size_t recipe_lane(std::size_t lane) const noexcept {
        if (workers == 0) return lane;
        if (lane >= lanes) return recipe_lanes;
        const auto own = parallel::split(recipe_lanes, workers, lane / worker_lanes());
        return own.first + std::min(lane % worker_lanes(), own.size());
    }
    /// Lanes that rows are dealt to.
    [[nodiscard]] constexpr std::size_t dealt_lanes() const noexcept { return workers == 0 ? lanes : recipe_lanes; }

    /// The workers of a group: a run of them, or with more groups than workers a part of one.
    [[nodiscard]] constexpr worker_part part_of_replica(std::size_t of) const noexcept {
        return deal(replicas(), {0, workers}, of);
    }
    /// The workers of a rank. No rank holds parts of two.
    [[nodiscard]] constexpr worker_part part_of(std::size_t of) const noexcept {
        const std::size_t size = group_size();
        const worker_part group = part_of_replica(of / size);
        if (group.count > 1) return {group.workers, group.index * size + of % size, group.count * size};
        return deal(size, group.workers, of % size);
    }
    /// The sums that a holder of these lanes keeps apart.
    [[nodiscard]] std::vector<tensor::subtree> nodes_of(parallel::block run) const {
        return tensor::cover(run, lanes, worker_lanes());
    }

private:
    /// What holder `which` of `holders` has of these workers. Where several holders share one, workers with more lanes
    /// get more holders.
    [[nodiscard]] constexpr worker_part deal(std::size_t holders, parallel::block of,
                                             std::size_t which) const noexcept {
        const std::size_t dealt = of.size();
        if (holders <= dealt) {
            const auto own = parallel::split(dealt, holders, which);
            return {{of.first + own.first, of.first + own.last}, 0, 1};
        }
        // Lanes of workers differ by one, and so do their holders: each has `least`, `more` of them one more.
        const std::size_t all = recipe_lanes > 0 ? recipe_lanes : lanes;
        const auto wide_before = [&](std::size_t worker) {
            const auto lanes_before = [&](std::size_t one) {
                return one == workers ? all : parallel::split(all, workers, one).first;
            };
            return lanes_before(worker) - lanes_before(of.first) - (worker - of.first) * (all / workers);
        };
        const std::size_t least = holders / dealt, more = holders % dealt, wide = wide_before(of.last);
        const auto holders_before = [&](std::size_t worker) {
            const std::size_t wide_ones = wide_before(worker), others = worker - of.first - wide_ones;
            return (worker - of.first) * least + std::min(more, wide_ones) +
                   std::min(more > wide ? more - wide : 0, others);
        };
        std::size_t worker = of.first;
        while (holders_before(worker + 1) <= which) ++worker;
        const std::size_t first = holders_before(worker);
        return {{worker, worker + 1}, which - first, holders_before(worker + 1) - first};
    }
};

/// Cuts the lanes of a grid for workers. Throws core::error where they cannot be dealt.
[[gnu::cold]] void deal_workers(grid& on, std::size_t workers);

/// Throws, on all ranks alike, where the ranks do not fill the grid, there are fewer lanes than ranks, or workers
/// cannot be dealt. `workers`: 0 where nothing has state of its own for each worker.
template <Partition P>
[[nodiscard, gnu::cold]] grid make_grid(std::size_t rank, std::size_t ranks, std::size_t lanes,
                                        std::size_t workers = 0) {
    constexpr std::size_t cell = P::shards * P::stages;
    if (ranks % cell != 0 || (!P::replicates && ranks != cell))
        core::fail(
            core::text(ranks, ranks == 1 ? " rank does" : " ranks do", " not fill a ", P::name, " partition with ",
                       P::stages > 1 ? P::stages : P::shards, P::stages > 1 ? " stages" : " shards"),
            P::replicates ? core::text("start a multiple of ", cell, " ranks")
                          : core::text("start ", cell, cell == 1 ? " rank" : " ranks",
                                       ", or use a hybrid partition to have several groups"));
    if (lanes < ranks)
        core::fail(core::text(ranks, " ranks share ", lanes, lanes == 1 ? " lane" : " lanes",
                              ", so some would have nothing to do"),
                   core::text("set lanes to at least ", ranks,
                              " (lanes are part of the recipe: another number gives other bits)"));
    grid out{.rank = rank, .ranks = ranks, .shards = P::shards, .lanes = lanes, .stages = P::stages};
    if (workers > 0) deal_workers(out, workers);
    return out;
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void deal_workers(grid& on, std::size_t workers) {
    const std::size_t lanes = on.lanes;
    if (workers > lanes)
        core::fail(core::text(workers, " workers share ", lanes, lanes == 1 ? " lane" : " lanes",
                              ", so some would have no samples"),
                   core::text("set lanes to a multiple of ", workers, ", or use at most ", lanes, " workers"));
    on.recipe_lanes = lanes;
    on.workers = workers;
    on.lanes = core::checked_product("lanes of all workers", workers, std::bit_ceil((lanes + workers - 1) / workers));
    for (std::size_t rank = 0; rank < on.ranks; ++rank) {
        const worker_part part = on.part_of(rank);
        const std::size_t own = parallel::split(lanes, workers, part.workers.first).size();
        if (part.count > own)
            core::fail(
                core::text("worker ", part.workers.first, " of ", workers, " has ", own, own == 1 ? " lane" : " lanes",
                           " for ", part.count, " of the ", on.ranks, " ranks"),
                core::text("set lanes to at least ", part.count * workers,
                           " (lanes are part of the recipe: another number gives other bits), or use more workers or "
                           "fewer ranks"));
    }
}

#endif

}  // namespace lockstep::partition
