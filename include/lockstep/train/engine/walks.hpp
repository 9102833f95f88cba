// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How often a rank walks through the network in a step: once over all its rows, or once for each worker that has
// weights of its own.
// Tested by tests/equivalence/local_sgd.cpp.

#include <cstddef>
#include <vector>

#include "lockstep/partition/grid.hpp"
#include "lockstep/train/engine/deal.hpp"

namespace lockstep::train {

/// One walk forward and backward in a step.
struct walk {
    const deal& rows;            ///< those of the walk
    std::size_t set = 0;         ///< of the weights on this rank
    std::size_t first_row = 0;   ///< among those of this rank,
    std::size_t first_lane = 0;  ///< and its lanes
    std::size_t samples = 1;     ///< its gradient is a mean over these
};

/// All rows of a rank at once.
class single_walk {
public:
    explicit single_walk(const partition::grid&) noexcept {}

    [[nodiscard]] static constexpr std::size_t count() noexcept { return 1; }
    [[nodiscard]] walk begin(std::size_t, const deal& all) const noexcept {
        return {.rows = all, .samples = all.rows()};
    }
};

/// A walk for each worker of this rank; one where ranks share a worker. Allocates on construction only.
class worker_walks {
public:
    [[gnu::cold]] explicit worker_walks(const partition::grid& on) : first_lane_{on.own_lanes().first} {
        const partition::worker_part part = on.part_of(on.rank);
        // Lanes of a worker are those of a rank that holds this worker alone.
        for (std::size_t worker = part.workers.first; worker < part.workers.last && part.workers.size() > 1; ++worker)
            workers_.emplace_back(partition::grid{.rank = worker,
                                                  .ranks = on.workers,
                                                  .lanes = on.lanes,
                                                  .workers = on.workers,
                                                  .recipe_lanes = on.recipe_lanes});
    }

    [[nodiscard]] std::size_t count() const noexcept { return workers_.empty() ? 1 : workers_.size(); }
    /// `all`: the deal of this rank.
    [[nodiscard]] walk begin(std::size_t set, const deal& all) noexcept {
        if (workers_.empty()) return {.rows = all};
        deal& own = workers_[set];
        own.follow(all);
        return {.rows = own,
                .set = set,
                .first_row = own.own().first_row() - all.own().first_row(),
                .first_lane = own.own().lanes().first - first_lane_};
    }

private:
    std::size_t first_lane_;
    std::vector<deal> workers_;  // none where the walk has all rows of the rank
};

}  // namespace lockstep::train
