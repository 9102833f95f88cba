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

    /// A minibatch of `rows` samples, cut by tensor::lane_begin(): lane l has the rows parallel::split(rows, lanes, l), but where that
    /// leaves a lane fewer than `least`, fewer lanes have more.
    void whole(std::size_t rows, std::size_t least = 1);

    /// Each rank has brought so many rows; it cuts them into its own lanes. With the counts that whole(rows) would give, the deal is the
    /// same.
    void brought(std::span<const std::size_t> rows_of_rank);

    [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
    [[nodiscard]] const tensor::lane_set& own() const noexcept { return own_; }               ///< lanes of this rank
    [[nodiscard]] const tensor::lane_set& group() const noexcept { return group_; }           ///< lanes of its model group
    [[nodiscard]] std::span<const std::size_t> lengths() const noexcept { return lengths_; }  ///< rows of each lane, of all ranks
    /// Rows of each rank of the model group, counted from the group's first.
    [[nodiscard]] const partition::row_blocks& members() const noexcept { return members_; }

    /// The rows of a minibatch of `rows` that whole() deals this rank.
    [[nodiscard]] static parallel::block own_rows(std::size_t rows, const partition::grid& on, std::size_t least = 1) noexcept {
        return rows_of(rows, on.lanes, on.own_lanes(), least);
    }

    /// The most rows that a rank has of a batch of `rows`, or of fewer.
    [[nodiscard]] static std::size_t capacity(std::size_t rows, const partition::grid& on, std::size_t least = 1);

private:
    /// Rows of a run of lanes of a minibatch of `rows`.
    [[nodiscard]] static parallel::block rows_of(std::size_t rows, std::size_t lanes, parallel::block run, std::size_t least) noexcept {
        return {tensor::lane_begin(rows, lanes, least, run.first), tensor::lane_begin(rows, lanes, least, run.last)};
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

LOCKSTEP_FUNCTION void deal::whole(std::size_t rows, std::size_t least) {
    tensor::deal_rows(rows, lengths_, least);
    assign();
}

LOCKSTEP_FUNCTION std::size_t deal::capacity(std::size_t rows, const partition::grid& on, std::size_t least) {
    std::size_t most = 0;
    const auto count = [&](std::size_t of) {
        for (std::size_t rank = 0; rank < on.ranks; ++rank) most = std::max(most, rows_of(of, on.lanes, on.lanes_of(rank), least).size());
    };
    count(rows);
    // A rank whose lanes all have rows may have more of fewer: of those that fill so many lanes, the most count.
    for (std::size_t filled = 1; filled < on.lanes && least > 1 && filled < rows / least; ++filled) count((filled + 1) * least - 1);
    return most;
}

LOCKSTEP_FUNCTION void deal::brought(std::span<const std::size_t> rows_of_rank) {
    const std::size_t rows = std::accumulate(rows_of_rank.begin(), rows_of_rank.end(), std::size_t{0});
    bool as_whole = true;
    for (std::size_t rank = 0; rank < grid_.ranks; ++rank)
        as_whole = as_whole && rows_of_rank[rank] == rows_of(rows, grid_.lanes, grid_.lanes_of(rank), 1).size();
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
