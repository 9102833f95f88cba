// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one place where samples of a minibatch are dealt to lanes and ranks.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/partition/redistribution.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::train {

/// Which rows of the minibatch are whose. All ranks hold the same deal. Allocates on construction only.
class deal {
public:
    [[gnu::cold]] explicit deal(const partition::grid& on) : deal{on, on.own_lanes()} {}
    /// The same for who has only these lanes.
    [[gnu::cold]] deal(const partition::grid& on, parallel::block own);

    /// A minibatch of `rows` samples, cut by tensor::lane_begin(): lane l has the rows parallel::split(rows, lanes, l),
    /// but where that leaves a lane fewer than `least`, fewer lanes have more.
    void whole(std::size_t rows, std::size_t least = 1);

    /// Each rank has brought so many rows; it cuts them into its own lanes. With the counts that whole(rows) would
    /// give, the deal is the same.
    void brought(std::span<const std::size_t> rows_of_rank);

    /// The rows of each lane are those of a deal of the same lanes.
    void follow(const deal& other) noexcept {
        std::ranges::copy(other.lengths_, lengths_.begin());
        assign();
    }

    [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
    [[nodiscard]] const tensor::lane_set& own() const noexcept { return own_; }      ///< lanes of this rank
    [[nodiscard]] const tensor::lane_set& group() const noexcept { return group_; }  ///< lanes of its group
    [[nodiscard]] std::span<const std::size_t> lengths() const noexcept {
        return lengths_;
    }  ///< rows of each lane, of all ranks
    /// Rows of each rank of the group, counted from the group's first.
    [[nodiscard]] const partition::row_blocks& members() const noexcept { return members_; }

    /// The rows of a minibatch of `rows` that whole() deals this rank.
    [[nodiscard]] static parallel::block own_rows(std::size_t rows, const partition::grid& on,
                                                  std::size_t least = 1) noexcept {
        return rows_of(rows, on, on.own_lanes(), least);
    }

    /// The most rows that a rank has of a batch of `rows`, or of fewer.
    [[nodiscard, gnu::cold]] static std::size_t capacity(std::size_t rows, const partition::grid& on,
                                                         std::size_t least = 1);
    /// The most that a lane has, also of rows that ranks bring: so many each at the most.
    [[nodiscard, gnu::cold]] static std::size_t lane_capacity(std::size_t rows, const partition::grid& on,
                                                              std::size_t least = 1);

private:
    /// Rows of a run of lanes of a minibatch of `rows`.
    [[nodiscard]] static parallel::block rows_of(std::size_t rows, const partition::grid& on, parallel::block run,
                                                 std::size_t least) noexcept {
        const std::size_t lanes = on.dealt_lanes();
        return {tensor::lane_begin(rows, lanes, least, on.recipe_lane(run.first)),
                tensor::lane_begin(rows, lanes, least, on.recipe_lane(run.last))};
    }
    void assign() {
        rows_ = std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0});
        own_.assign(lengths_);
        group_.assign(lengths_);
        std::size_t at = 0;
        for (std::size_t member = 0; member < members_.size(); ++member) {
            const auto lanes = grid_.lanes_of(grid_.replica() * members_.size() + member);
            const std::size_t first = at;
            for (std::size_t lane = lanes.first; lane < lanes.last; ++lane) at += lengths_[lane];
            members_[member] = {first, at};
        }
    }

    partition::grid grid_;
    std::vector<std::size_t> lengths_;
    std::size_t rows_ = 0;
    tensor::lane_set own_;
    tensor::lane_set group_;
    partition::row_blocks members_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION deal::deal(const partition::grid& on, parallel::block own)
    : grid_{on},
      lengths_(on.lanes),
      own_{on.lanes, own, on.worker_lanes()},
      group_{on.lanes, on.group_lanes(), on.worker_lanes()},
      members_(on.group_size()) {}

LOCKSTEP_FUNCTION void deal::whole(std::size_t rows, std::size_t least) {
    for (std::size_t lane = 0; lane < lengths_.size(); ++lane)
        lengths_[lane] = rows_of(rows, grid_, {lane, lane + 1}, least).size();
    assign();
}

LOCKSTEP_FUNCTION std::size_t deal::capacity(std::size_t rows, const partition::grid& on, std::size_t least) {
    std::size_t most = 0;
    const auto count = [&](std::size_t of) {
        for (std::size_t rank = 0; rank < on.ranks; ++rank) {
            const auto run = on.lanes_of(rank);
            most = std::max(most, rows_of(of, on, run, least).size());
            if (on.workers == 0) continue;
            // Ranks that share a worker may have more lanes than the last one, and then more of fewer rows: a bound for
            // all of these.
            const std::size_t lanes = on.dealt_lanes(), filled = std::clamp<std::size_t>(of / least, 1, lanes);
            const std::size_t own =
                on.recipe_lane(run.last) * filled / lanes - on.recipe_lane(run.first) * filled / lanes;
            most = std::max(most, (own * of + filled - 1) / filled);
        }
    };
    count(rows);
    // A rank whose lanes all have rows may have more of fewer: of those that fill so many lanes, the most count.
    for (std::size_t filled = 1; filled < on.dealt_lanes() && least > 1 && filled < rows / least; ++filled)
        count((filled + 1) * least - 1);
    return most;
}

LOCKSTEP_FUNCTION std::size_t deal::lane_capacity(std::size_t rows, const partition::grid& on, std::size_t least) {
    const std::size_t lanes = on.dealt_lanes(), brought = capacity(rows, on, least);
    std::size_t most = capacity(rows, {.ranks = lanes, .lanes = lanes}, least);
    for (std::size_t rank = 0; rank < on.ranks; ++rank) {
        const auto run = on.lanes_of(rank);
        const std::size_t own = on.recipe_lane(run.last) - on.recipe_lane(run.first);
        if (own > 0) most = std::max(most, (brought + own - 1) / own);
    }
    return most;
}

LOCKSTEP_FUNCTION void deal::brought(std::span<const std::size_t> rows_of_rank) {
    const std::size_t rows = std::accumulate(rows_of_rank.begin(), rows_of_rank.end(), std::size_t{0});
    bool as_whole = true;
    for (std::size_t rank = 0; rank < grid_.ranks; ++rank)
        as_whole = as_whole && rows_of_rank[rank] == rows_of(rows, grid_, grid_.lanes_of(rank), 1).size();
    if (as_whole) return whole(rows);
    for (std::size_t rank = 0; rank < grid_.ranks; ++rank) {
        const auto run = grid_.lanes_of(rank);
        const std::size_t first = grid_.recipe_lane(run.first), lanes = grid_.recipe_lane(run.last) - first;
        for (std::size_t lane = run.first; lane < run.last; ++lane) {
            const std::size_t at = grid_.recipe_lane(lane) - first;
            const bool has_rows = grid_.recipe_lane(lane + 1) - first > at;
            lengths_[lane] = has_rows ? parallel::split(rows_of_rank[rank], lanes, at).size() : 0;
        }
    }
    assign();
}

#endif

}  // namespace lockstep::train
