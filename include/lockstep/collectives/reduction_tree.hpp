// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where each node of the lane tree is added: the choice between the fewest rounds and the fewest elements, for lanes
// dealt in any way.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::collectives {

inline constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// How partial sums travel. direct: every one to the owner of the strip, in one round. least: to where the fewest have
/// to move in total, in as many rounds as that takes; recursive halving where each rank holds one node of an aligned
/// power of two. automatic: the one whose busiest rank sends and receives fewer elements, least among equals.
enum class tree_route : std::uint8_t { automatic, direct, least };

/// Where one node's sum for one strip is added up.
struct node_location {
    std::size_t rank = 0;
    std::size_t round = 0;       ///< message rounds that are over when the sum is there
    std::size_t leaf = nowhere;  ///< the leaf whose array holds the sum; nowhere = the sum lies in scratch
};

/// The tree over lane numbers, down to the nodes that ranks can finish alone (the leaves). Children stand before their
/// parent, the root is last.
class lane_tree {
public:
    struct node {
        std::size_t left = nowhere;
        std::size_t right = nowhere;
        std::size_t parent = nowhere;
        std::size_t rank = nowhere;     ///< leaf: who holds it
        std::size_t slot = 0;           ///< leaf: its number among the rank's nodes
        std::vector<std::size_t> best;  ///< ranks on which the fewest messages complete this node
        [[nodiscard]] bool leaf() const noexcept { return left == nowhere; }
    };

    /// lanes[r] is the run of lanes that rank r computes; the runs, in any order, are a partition of 0 .. total-1.
    [[gnu::cold]] explicit lane_tree(std::span<const parallel::block> lanes);

    [[nodiscard]] std::span<const node> nodes() const noexcept { return nodes_; }
    [[nodiscard]] std::size_t root() const noexcept { return nodes_.size() - 1; }
    [[nodiscard]] std::size_t total() const noexcept { return total_; }

    /// The location of every node for the strip of `owner`. `direct`: all at the owner. Otherwise the fewest transfers
    /// that exist (Fitch 1971: the same problem as the fewest mutations in a tree), and among equals the ones that
    /// recursive halving takes.
    [[gnu::cold]] void locate(std::size_t owner, bool direct, std::span<node_location> out) const {
        for (std::size_t v = nodes_.size(); v-- > 0;) {
            const node& current = nodes_[v];
            if (current.leaf()) {
                out[v].rank = current.rank;
            } else if (direct) {
                out[v].rank = owner;
            } else if (current.parent == nowhere) {
                out[v].rank = choose(current, owner, owner);
            } else {
                const node& above = nodes_[current.parent];
                const std::size_t wanted = out[current.parent].rank;
                const node& sibling = nodes_[above.left == v ? above.right : above.left];
                out[v].rank = choose(current, wanted, index(sibling.best, wanted));
            }
        }
        for (std::size_t v = 0; v < nodes_.size(); ++v) {
            const node& current = nodes_[v];
            if (current.leaf()) {
                out[v].round = 0;
                out[v].leaf = v;
                continue;
            }
            const node_location& left = out[current.left];
            const node_location& right = out[current.right];
            const bool has_left = left.rank == out[v].rank && left.leaf != nowhere;
            const bool has_right = right.rank == out[v].rank && right.leaf != nowhere;
            out[v].leaf = has_left ? left.leaf : has_right ? right.leaf : nowhere;
            out[v].round = std::max(left.round + (left.rank != out[v].rank), right.round + (right.rank != out[v].rank));
        }
    }

    /// The elements that the busiest rank sends or receives, whichever is more, when each rank owns its strip.
    [[nodiscard, gnu::cold]] std::size_t busiest(std::span<const parallel::block> strips, bool direct) const;

private:
    struct held {
        tensor::subtree lanes;
        std::size_t rank;
        std::size_t slot;
    };

    static std::size_t index(const std::vector<std::size_t>& sorted, std::size_t value) {
        const auto at = std::lower_bound(sorted.begin(), sorted.end(), value);
        return at != sorted.end() && *at == value ? static_cast<std::size_t>(at - sorted.begin()) : nowhere;
    }

    static std::size_t choose(const node& current, std::size_t wanted, std::size_t turn) {
        if (index(current.best, wanted) != nowhere) return wanted;
        return current.best[(turn == nowhere ? wanted : turn) % current.best.size()];
    }

    [[gnu::cold]] std::size_t build(const std::vector<held>& leaves, std::size_t& next, std::size_t first,
                                    std::size_t length);

    std::size_t total_ = 0;
    std::vector<node> nodes_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION lane_tree::lane_tree(std::span<const parallel::block> lanes) {
    for (const auto& run : lanes) total_ += run.size();
    std::vector<held> leaves;
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
        std::size_t slot = 0;
        if (lanes[rank].first > lanes[rank].last || (!lanes[rank].empty() && lanes[rank].last > total_))
            core::fail(
                core::text("rank ", rank, " has lanes ", lanes[rank].first, " to ", lanes[rank].last, " of ", total_),
                "deal each lane to exactly one rank");
        for (const auto& tree : tensor::cover(lanes[rank], total_)) leaves.push_back({tree, rank, slot++});
    }
    core::sort(leaves, [](const held& a, const held& b) { return a.lanes.first < b.lanes.first; });
    std::size_t at = 0;
    for (const held& leaf : leaves) {
        if (leaf.lanes.first != at)
            core::fail(core::text("lane ", at, " of ", total_, " belongs to no rank or to several"),
                       "deal each lane to exactly one rank");
        at += leaf.lanes.count;
    }
    if (total_ == 0) core::fail("a sum over 0 lanes", "use at least one lane");
    std::size_t next = 0;
    build(leaves, next, 0, std::bit_ceil(total_));
}

LOCKSTEP_FUNCTION std::size_t lane_tree::busiest(std::span<const parallel::block> strips, bool direct) const {
    std::vector<node_location> locations(nodes_.size());
    std::vector<std::size_t> sent(strips.size());
    std::vector<std::size_t> received(strips.size());
    for (std::size_t owner = 0; owner < strips.size(); ++owner) {
        if (strips[owner].empty()) continue;
        locate(owner, direct, locations);
        for (std::size_t v = 0; v < nodes_.size(); ++v) {
            const std::size_t target = nodes_[v].parent == nowhere ? owner : locations[nodes_[v].parent].rank;
            if (target == locations[v].rank) continue;
            sent[locations[v].rank] += strips[owner].size();
            received[target] += strips[owner].size();
        }
    }
    return std::max(*std::max_element(sent.begin(), sent.end()), *std::max_element(received.begin(), received.end()));
}

LOCKSTEP_FUNCTION std::size_t lane_tree::build(const std::vector<held>& leaves, std::size_t& next, std::size_t first,
                                               std::size_t length) {
    const std::size_t end = std::min(first + length, total_);
    const held& leaf = leaves[next];
    node made;
    if (leaf.lanes.first == first && leaf.lanes.count == end - first) {
        made.rank = leaf.rank;
        made.slot = leaf.slot;
        made.best = {leaf.rank};
        ++next;
    } else {
        made.left = build(leaves, next, first, length / 2);
        if (first + length / 2 >= total_) return made.left;
        made.right = build(leaves, next, first + length / 2, length / 2);
        nodes_[made.left].parent = nodes_[made.right].parent = nodes_.size();
        const auto& left = nodes_[made.left].best;
        const auto& right = nodes_[made.right].best;
        std::set_intersection(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(made.best));
        if (made.best.empty())
            std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(made.best));
    }
    nodes_.push_back(std::move(made));
    return nodes_.size() - 1;
}

#endif

}  // namespace lockstep::collectives
