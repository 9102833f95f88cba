// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lanes: the fixed cut of the global minibatch, and the one binary tree over which their sums are added, whatever the number of ranks.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/parallel/loop.hpp"

namespace lockstep::tensor {

/// A run of whole lanes whose sum is one node of the tree.
struct subtree {
    std::size_t first = 0;  ///< lane number in the global minibatch
    std::size_t count = 0;
};

/// The tree: node (level, i) covers lanes [i 2^level, (i+1) 2^level), cut off at the number of lanes, and is the sum of its two halves.
/// A run of lanes is a list of whole nodes: the fewest that cover it, at most 2 log2(lanes).
[[nodiscard]] inline std::vector<subtree> cover(parallel::block lanes, std::size_t total) {
    std::vector<subtree> out;
    for (std::size_t at = lanes.first; at < lanes.last;) {
        std::size_t length = at == 0 ? std::bit_ceil(std::max<std::size_t>(total, 1)) : (at & (~at + 1));
        while (std::min(at + length, total) > lanes.last) length /= 2;
        const std::size_t end = std::min(at + length, total);
        out.push_back({at, end - at});
        at = end;
    }
    return out;
}

/// Sums kept while a subtree of `lanes` lanes is walked from left to right.
[[nodiscard]] constexpr std::size_t tree_depth(std::size_t lanes) noexcept { return std::bit_width(lanes); }

/// Walks the lanes of a subtree from left to right, adding finished nodes as a binary counter carries. The caller keeps
/// tree_depth(count) partial sums: fill(lane, level) computes a lane into one, add(level) adds partial level+1 to partial level.
/// The result is partial 0.
template <class Fill, class Add>
constexpr void walk(std::size_t count, Fill&& fill, Add&& add) {
    std::size_t held = 0;
    for (std::size_t lane = 0; lane < count; ++lane) {
        fill(lane, held++);
        for (std::size_t carry = lane + 1; (carry & 1) == 0; carry >>= 1) add(--held - 1);
    }
    while (held > 1) add(--held - 1);
}

/// One rank's lanes of a minibatch: which of its rows belong to which lane, and which nodes of the tree it can finish alone.
class lane_set {
public:
    lane_set() = default;

    /// Rows of the whole minibatch are dealt over `total` lanes, and this rank has the run `lanes`.
    lane_set(std::size_t rows, std::size_t total, parallel::block lanes) : total_{total}, lanes_{lanes} {
        trees_ = cover(lanes, total);
        bounds_.reserve(lanes.size() + 1);
        deal(rows);
    }

    /// The same lanes for a minibatch of another size (the short one at the end of an epoch): allocates nothing.
    void deal(std::size_t rows) {
        bounds_.clear();
        first_row_ = parallel::split(rows, total_, lanes_.first).first;
        bounds_.push_back(0);
        for (std::size_t lane = lanes_.first; lane < lanes_.last; ++lane)
            bounds_.push_back(parallel::split(rows, total_, lane).last - first_row_);
        if (lanes_.empty()) first_row_ = 0;
    }

    /// The same lanes for rows that are already here, cut as evenly as they can be.
    void deal_local(std::size_t rows, std::size_t first_row) {
        bounds_.clear();
        first_row_ = first_row;
        bounds_.push_back(0);
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) bounds_.push_back(parallel::split(rows, lanes_.size(), lane).last);
    }

    [[nodiscard]] std::size_t total() const noexcept { return total_; }
    [[nodiscard]] parallel::block lanes() const noexcept { return lanes_; }
    [[nodiscard]] std::size_t count() const noexcept { return lanes_.size(); }
    [[nodiscard]] std::size_t rows() const noexcept { return bounds_.back(); }
    /// Number of this rank's first row in the global minibatch.
    [[nodiscard]] std::size_t first_row() const noexcept { return first_row_; }
    [[nodiscard]] std::span<const subtree> trees() const noexcept { return trees_; }
    /// Local rows of local lane `lane`.
    [[nodiscard]] parallel::block rows_of(std::size_t lane) const noexcept { return {bounds_[lane], bounds_[lane + 1]}; }
    /// Local rows of the `index`-th lane of a subtree.
    [[nodiscard]] parallel::block rows_of(const subtree& tree, std::size_t index) const noexcept {
        return rows_of(tree.first - lanes_.first + index);
    }

private:
    std::size_t total_ = 1;
    parallel::block lanes_{0, 1};
    std::size_t first_row_ = 0;
    std::vector<subtree> trees_{{0, 1}};
    std::vector<std::size_t> bounds_{0, 0};
};

}  // namespace lockstep::tensor
