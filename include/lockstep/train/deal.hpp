// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one place where samples of a minibatch are dealt to lanes and ranks.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/partition/exchange.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::train {

/// Which rows of the minibatch are whose. All ranks hold the same deal. Allocates on construction only.
class deal {
public:
    explicit deal(const partition::grid& on);

    /// A minibatch of `rows` samples, cut into lanes as evenly as possible: lane l has the rows parallel::split(rows, lanes, l).
    void whole(std::size_t rows);

    /// Each rank has brought so many rows; it cuts them into its own lanes. With the counts that whole() would give, the deal is the same.
    void brought(std::span<const std::size_t> rows_of_rank);

    [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
    [[nodiscard]] const tensor::lane_set& own() const noexcept { return own_; }      ///< lanes of this rank
    [[nodiscard]] const tensor::lane_set& group() const noexcept { return group_; }  ///< lanes of its model group
    /// Rows of each rank of the model group, counted from the group's first.
    [[nodiscard]] const partition::row_blocks& members() const noexcept { return members_; }

    /// The rows of a minibatch of `rows` that whole() deals this rank.
    [[nodiscard]] static parallel::block own_rows(std::size_t rows, const partition::grid& on) noexcept {
        const auto run = on.own_lanes();
        return {parallel::split(rows, on.lanes, run.first).first, parallel::split(rows, on.lanes, run.last - 1).last};
    }

    /// The most rows that a rank has of a batch of `rows`.
    [[nodiscard]] static std::size_t capacity(std::size_t rows, const partition::grid& on);

private:
    /// Rows of a run of lanes of a minibatch of `rows`.
    [[nodiscard]] static std::size_t rows_of(std::size_t rows, std::size_t lanes, parallel::block run) noexcept {
        return run.empty() ? 0 : parallel::split(rows, lanes, run.last - 1).last - parallel::split(rows, lanes, run.first).first;
    }
    void assign() {
        rows_ = std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0});
        own_.assign(lengths_);
        group_.assign(lengths_);
        std::size_t at = 0;
        for (std::size_t member = 0; member < grid_.shards; ++member) {
            const auto lanes = grid_.lanes_of(grid_.replica() * grid_.shards + member);
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

LOCKSTEP_FUNCTION deal::deal(const partition::grid& on)
    : grid_{on}, lengths_(on.lanes), own_{on.lanes, on.own_lanes()}, group_{on.lanes, on.group_lanes()}, members_(on.shards) {}

LOCKSTEP_FUNCTION void deal::whole(std::size_t rows) {
    tensor::deal_rows(rows, lengths_);
    assign();
}

LOCKSTEP_FUNCTION std::size_t deal::capacity(std::size_t rows, const partition::grid& on) {
    std::size_t most = 0;
    for (std::size_t rank = 0; rank < on.ranks; ++rank) most = std::max(most, rows_of(rows, on.lanes, on.lanes_of(rank)));
    return most;
}

LOCKSTEP_FUNCTION void deal::brought(std::span<const std::size_t> rows_of_rank) {
    const std::size_t rows = std::accumulate(rows_of_rank.begin(), rows_of_rank.end(), std::size_t{0});
    bool as_whole = true;
    for (std::size_t rank = 0; rank < grid_.ranks; ++rank)
        as_whole = as_whole && rows_of_rank[rank] == rows_of(rows, grid_.lanes, grid_.lanes_of(rank));
    if (as_whole) return whole(rows);
    for (std::size_t rank = 0; rank < grid_.ranks; ++rank) {
        const auto lanes = grid_.lanes_of(rank);
        for (std::size_t lane = 0; lane < lanes.size(); ++lane)
            lengths_[lanes.first + lane] = parallel::split(rows_of_rank[rank], lanes.size(), lane).size();
    }
    assign();
}

#endif

}  // namespace lockstep::train
