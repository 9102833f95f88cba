// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lanes: the fixed cut of the global minibatch, and the one binary tree over which their sums are added, whatever the
// number of ranks.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::tensor {

/// A run of whole lanes whose sum is one node of the tree.
struct subtree {
    std::size_t first = 0;  ///< lane number in the global minibatch
    std::size_t count = 0;
};

/// The tree: node (level, i) covers lanes [i 2^level, (i+1) 2^level), cut off at the number of lanes, and is the sum of
/// its two halves. A run of lanes is a list of whole nodes: the fewest that cover it, at most 2 log2(lanes). `longest`,
/// a power of two: none of more lanes, where the sums of workers are kept apart; 0: no limit.
[[nodiscard]] std::vector<subtree> cover(parallel::block lanes, std::size_t total, std::size_t longest = 0);

/// The same nodes one after the other, without an allocation: f(subtree).
template <class F>
constexpr void each_node(parallel::block lanes, std::size_t total, std::size_t longest, F&& f) {
    for (std::size_t at = lanes.first; at < lanes.last;) {
        std::size_t length = at == 0 ? std::bit_ceil(std::max<std::size_t>(total, 1)) : (at & (~at + 1));
        while (std::min(at + length, total) > lanes.last || (longest != 0 && length > longest)) length /= 2;
        const std::size_t end = std::min(at + length, total);
        f(subtree{at, end - at});
        at = end;
    }
}

/// Sums kept while a subtree of `lanes` lanes is walked from left to right.
[[nodiscard]] constexpr std::size_t tree_depth(std::size_t lanes) noexcept { return std::bit_width(lanes); }

/// Walks the lanes of a subtree from left to right, adding finished nodes as a binary counter carries. The caller keeps
/// tree_depth(count) partial sums: fill(lane, level) computes a lane into one, add(level) adds partial level+1 to
/// partial level. The result is partial 0.
template <class Fill, class Add>
constexpr void walk(std::size_t count, Fill&& fill, Add&& add) {
    std::size_t held = 0;
    for (std::size_t lane = 0; lane < count; ++lane) {
        fill(lane, held++);
        for (std::size_t carry = lane + 1; (carry & 1) == 0; carry >>= 1) add(--held - 1);
    }
    while (held > 1) add(--held - 1);
}

/// Where lane `lane` of `lanes` begins in a minibatch of `rows`; where the last one ends for lane = lanes. As many
/// lanes as can have `least` rows have some, F = min(lanes, rows / least) of them: lanes ceil(k lanes / F) - 1 for k =
/// 1 .. F. These share the rows in order and as equally as possible, so a rank far along the lanes is as busy as the
/// first one. Fewer rows than `least` are all in the last lane. A function of these numbers alone: the ranks of a job
/// change nothing.
[[nodiscard]] constexpr std::size_t lane_begin(std::size_t rows, std::size_t lanes, std::size_t least,
                                               std::size_t lane) noexcept {
    const std::size_t filled = std::clamp<std::size_t>(rows / least, 1, lanes);
    return rows * (lane * filled / lanes) / filled;
}

/// The lengths of the lanes of a minibatch of `rows`, by lane_begin(): with least = 1 as equal as possible, empty ones
/// where there are fewer rows than lanes.
inline void deal_rows(std::size_t rows, std::span<std::size_t> lengths, std::size_t least = 1) noexcept {
    for (std::size_t lane = 0; lane < lengths.size(); ++lane)
        lengths[lane] =
            lane_begin(rows, lengths.size(), least, lane + 1) - lane_begin(rows, lengths.size(), least, lane);
}

/// A run of lanes on one rank: which of its rows belong to which lane, and which nodes of the tree it can finish alone.
class lane_set {
public:
    /// `lanes` of `total` lanes, without rows. `longest`: the most lanes of a node, see cover().
    lane_set(std::size_t total, parallel::block lanes, std::size_t longest = 0)
        : total_{total}, lanes_{lanes}, trees_{cover(lanes, total, longest)}, blocks_(lanes.size()) {}

    /// Takes its part of a minibatch: `lengths` has the rows of all the lanes, here and elsewhere. Allocates nothing.
    void assign(std::span<const std::size_t> lengths) noexcept {
        first_row_ = 0;
        for (std::size_t lane = 0; lane < lanes_.first; ++lane) first_row_ += lengths[lane];
        std::size_t at = 0;
        for (std::size_t lane = 0; lane < count(); ++lane) {
            const std::size_t end = at + lengths[lanes_.first + lane];
            blocks_[lane] = {at, end};
            at = end;
        }
    }

    [[nodiscard]] std::size_t total() const noexcept { return total_; }
    [[nodiscard]] parallel::block lanes() const noexcept { return lanes_; }
    [[nodiscard]] std::size_t count() const noexcept { return lanes_.size(); }
    [[nodiscard]] std::size_t rows() const noexcept { return blocks_.empty() ? 0 : blocks_.back().last; }
    /// Number of the first row in the global minibatch.
    [[nodiscard]] std::size_t first_row() const noexcept { return first_row_; }
    [[nodiscard]] std::span<const subtree> trees() const noexcept { return trees_; }
    /// Local rows of each lane, in order.
    [[nodiscard]] std::span<const parallel::block> blocks() const noexcept { return blocks_; }
    /// Local rows of the lanes of one subtree.
    [[nodiscard]] std::span<const parallel::block> blocks(const subtree& tree) const noexcept {
        return blocks().subspan(tree.first - lanes_.first, tree.count);
    }

private:
    std::size_t total_;
    parallel::block lanes_;
    std::size_t first_row_ = 0;
    std::vector<subtree> trees_;
    std::vector<parallel::block> blocks_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::vector<subtree> cover(parallel::block lanes, std::size_t total, std::size_t longest) {
    std::vector<subtree> out;
    each_node(lanes, total, longest, [&](const subtree& node) { out.push_back(node); });
    return out;
}

#endif

}  // namespace lockstep::tensor
