// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The invariant sum: lanes are added over one fixed binary tree, whatever the number of ranks, and each rank keeps its
// strip of the result.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/collectives/reduction_tree.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::collectives {

/// Strips are cut at multiples of so many elements: a cache line of floats.
inline constexpr std::size_t strip_grain = 16;

/// The run of lanes of each rank, as equal as possible.
[[nodiscard]] std::vector<parallel::block> deal_lanes(std::size_t ranks, std::size_t lanes);

/// Whether recursive halving walks the tree: a power of two of ranks, each with one node of the same level, in order.
[[nodiscard]] inline bool is_halving(std::span<const parallel::block> lanes) {
    const std::size_t ranks = lanes.size();
    if (!std::has_single_bit(ranks) || lanes.empty() || lanes[0].first != 0 || lanes[0].empty()) return false;
    const std::size_t each = lanes[0].size();
    if (!std::has_single_bit(each)) return false;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        if (lanes[rank] != parallel::block{rank * each, (rank + 1) * each}) return false;
    return true;
}

/// The lowest log2(ranks) bits of `rank` in reverse order.
[[nodiscard]] constexpr std::size_t mirrored(std::size_t rank, std::size_t ranks) noexcept {
    std::size_t out = 0;
    for (std::size_t bit = 1; bit < ranks; bit *= 2) out = 2 * out + ((rank & bit) != 0);
    return out;
}

/// The strip of n elements that each rank owns: as equal as possible, in mirrored order where the tree is recursive
/// halving.
[[nodiscard]] std::vector<parallel::block> tree_strips(std::span<const parallel::block> lanes, std::size_t n);
[[nodiscard]] inline std::vector<parallel::block> tree_strips(std::size_t ranks, std::size_t lanes, std::size_t n) {
    return tree_strips(deal_lanes(ranks, lanes), n);
}

/// Elements of data that a rank with these lanes provides: one vector for each of its nodes, and at least one.
[[nodiscard]] inline std::size_t tree_data_size(parallel::block lanes, std::size_t total, std::size_t n) {
    return n * std::max<std::size_t>(1, tensor::cover(lanes, total).size());
}

namespace detail {

/// Writes one rank's program from the locations of all nodes for all strips.
class tree_writer {
public:
    tree_writer(std::size_t rank, const lane_tree& tree, std::size_t n)
        : rank_{rank}, tree_{tree}, n_{n}, locations_(tree.nodes().size()) {}

    [[gnu::cold]] void strip(std::size_t owner, parallel::block strip, bool direct);

    [[gnu::cold]] void write(schedule& out);

private:
    /// The values of a node for a strip: the received piece of that number, or (nowhere) data from `first` on.
    struct buffer_location {
        std::size_t piece = nowhere;
        std::size_t first = nowhere;
        friend bool operator==(const buffer_location&, const buffer_location&) = default;
    };
    struct transfer {
        std::size_t round, peer, node, leaf;
        parallel::block strip;
        std::size_t needed;  ///< receive: the round of the addition; nowhere = this is the result
        std::size_t number;
    };
    struct addition {
        std::size_t round, node;
        parallel::block strip;
        buffer_location to, from;
    };
    struct allocation {
        std::size_t first, last, until;
    };
    using transfers = std::vector<transfer>;

    [[nodiscard]] buffer_location own(std::size_t leaf, parallel::block strip) const {
        return {nowhere, tree_.nodes()[leaf].slot * n_ + strip.first};
    }
    [[nodiscard]] range where(const buffer_location& at, parallel::block strip) const {
        return at.piece == nowhere ? in_data(at.first, strip.size()) : in_work(scratch_[at.piece], strip.size());
    }

    /// Neighbouring strips of one node in one array travel as one message: sender and receiver cut alike, because both
    /// know all locations.
    [[gnu::cold]] static transfers::const_iterator joined(transfers::const_iterator first,
                                                          transfers::const_iterator end) {
        auto last = first;
        for (auto next = first + 1; next != end; last = next++)
            if (next->round != first->round || next->peer != first->peer || next->node != first->node ||
                next->leaf != first->leaf || next->strip.first != last->strip.last)
                break;
        return last + 1;
    }

    /// The first gap in the scratch that is long enough until round `until` is over.
    [[gnu::cold]] std::size_t allocate(std::size_t count, std::size_t until);

    std::size_t rank_;
    const lane_tree& tree_;
    std::size_t n_;
    std::vector<node_location> locations_;
    transfers sends_;
    transfers receives_;
    std::vector<addition> adds_;
    std::vector<std::size_t> scratch_;
    std::vector<allocation> live_;
};

}  // namespace detail

///     ranks       0     1     2     3       recursive halving from distance 1 upwards walks the tree
///     distance 1  0 <-> 1     2 <-> 3       half of the vector: nodes 01 and 23
///     distance 2  0 <-------> 2, 1 <-> 3    a quarter: node 0123
/// Use a power of two of lanes for a power of two of ranks, a multiple of 3 for 3, 6 or 12 ranks, and few more lanes
/// than ranks: elements for other pairs stand in docs/components.md.
/// Reduce-scatter of one n-vector for each lane, in the order of the lane tree: element i of the result is the sum that
/// one rank would get, bit for bit, for every number of ranks and every deal of the lanes. Before: data[s n, (s+1) n)
/// is node s of tensor::cover(lanes[rank], total). After: data[strips[rank]] is the sum over all lanes of that strip;
/// the rest of data is used up. `strips` is a partition of 0 .. n-1, in any order, empty ones allowed; tree_strips()
/// has the best one. Cost per rank: recursive halving log2(p) messages, n(p-1)/p elements, n/2 of scratch. Direct, with
/// c nodes on a rank: c(p-1) messages, c(n - own strip) elements, scratch of own strip x nodes of all other ranks, one
/// round. Least: never more elements in total than direct.
[[nodiscard, gnu::cold]] schedule tree_reduce_scatter(std::size_t rank, std::span<const parallel::block> lanes,
                                                      std::size_t n, std::span<const parallel::block> strips,
                                                      tree_route route = tree_route::automatic);

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION void tree_writer::strip(std::size_t owner, parallel::block strip, bool direct) {
    const auto nodes = tree_.nodes();
    tree_.locate(owner, direct, locations_);
    std::vector<buffer_location> at(nodes.size());
    for (std::size_t v = 0; v < nodes.size(); ++v) {
        const node_location& location = locations_[v];
        if (location.rank == rank_ && location.leaf != nowhere) at[v] = own(location.leaf, strip);
        if (location.rank == rank_ && !nodes[v].leaf()) {
            const buffer_location left = at[nodes[v].left];
            const buffer_location right = at[nodes[v].right];
            if (location.leaf == nowhere) at[v] = left;
            const std::size_t round = std::max<std::size_t>(location.round, 1) - 1;
            adds_.push_back({round, v, strip, at[v], at[v] == left ? right : left});
        }
        const std::size_t parent = nodes[v].parent;
        const std::size_t target = parent == nowhere ? owner : locations_[parent].rank;
        if (target == location.rank) continue;
        if (location.rank == rank_) sends_.push_back({location.round, target, v, location.leaf, strip, 0, nowhere});
        if (target == rank_) {
            const std::size_t needed =
                parent == nowhere ? nowhere : std::max<std::size_t>(locations_[parent].round, 1) - 1;
            at[v] = parent == nowhere ? buffer_location{nowhere, strip.first} : buffer_location{receives_.size(), 0};
            receives_.push_back({location.round, location.rank, v, location.leaf, strip, needed, receives_.size()});
        }
    }
    const node_location& root = locations_[tree_.root()];
    const buffer_location result{nowhere, strip.first};
    if (owner == rank_ && root.rank == rank_ && at[tree_.root()] != result)
        adds_.push_back({std::max<std::size_t>(root.round, 1) - 1, nodes.size(), strip, result, at[tree_.root()]});
}

LOCKSTEP_FUNCTION void tree_writer::write(schedule& out) {
    // Each rank begins with another peer: not all of them with rank 0.
    const auto order = [this](const transfer& a, const transfer& b) {
        return std::tuple{a.round, a.peer < rank_, a.peer, a.node, a.strip.first} <
               std::tuple{b.round, b.peer < rank_, b.peer, b.node, b.strip.first};
    };
    core::sort(sends_, order);
    core::sort(receives_, order);
    core::sort(adds_, [](const addition& a, const addition& b) {
        return std::tuple{a.round, a.node, a.strip.first} < std::tuple{b.round, b.node, b.strip.first};
    });
    scratch_.resize(receives_.size());
    std::size_t rounds = 0;
    for (const auto* list : {&sends_, &receives_})
        if (!list->empty()) rounds = std::max(rounds, list->back().round + 1);
    if (!adds_.empty()) rounds = std::max(rounds, adds_.back().round + 1);

    auto send = sends_.cbegin();
    auto receive = receives_.cbegin();
    auto add = adds_.cbegin();
    for (std::size_t round = 0; round < rounds; ++round) {
        std::erase_if(live_, [&](const allocation& entry) { return entry.until < round; });
        while (receive != receives_.end() && receive->round == round) {
            const auto end = joined(receive, receives_.end());
            const std::size_t count = std::prev(end)->strip.last - receive->strip.first;
            if (receive->needed == nowhere) {
                out.receive(receive->peer, in_data(receive->strip.first, count));
            } else {
                std::size_t until = 0;
                for (auto part = receive; part != end; ++part) until = std::max(until, part->needed);
                const std::size_t first = allocate(count, until);
                for (auto part = receive; part != end; ++part)
                    scratch_[part->number] = first + part->strip.first - receive->strip.first;
                out.receive(receive->peer, in_work(first, count));
            }
            receive = end;
        }
        while (send != sends_.end() && send->round == round) {
            const auto end = joined(send, sends_.end());
            out.send(send->peer,
                     in_data(own(send->leaf, send->strip).first, std::prev(end)->strip.last - send->strip.first));
            send = end;
        }
        for (; add != adds_.end() && add->round == round; ++add) {
            if (add->node == tree_.nodes().size())
                out.copy(where(add->to, add->strip), where(add->from, add->strip));
            else
                out.add(where(add->to, add->strip), where(add->from, add->strip));
        }
        out.end_round();
    }
}

LOCKSTEP_FUNCTION std::size_t tree_writer::allocate(std::size_t count, std::size_t until) {
    std::size_t at = 0;
    auto next = live_.begin();
    for (; next != live_.end() && next->first < at + count; ++next) at = next->last;
    live_.insert(next, {at, at + count, until});
    return at;
}

}  // namespace detail

LOCKSTEP_FUNCTION schedule tree_reduce_scatter(std::size_t rank, std::span<const parallel::block> lanes, std::size_t n,
                                               std::span<const parallel::block> strips, tree_route route) {
    if (strips.size() != lanes.size() || rank >= lanes.size())
        core::fail(core::text("rank ", rank, " with ", lanes.size(), " runs of lanes and ", strips.size(), " strips"),
                   "pass one run of lanes and one strip for each rank");
    std::vector<std::size_t> order;
    for (std::size_t owner = 0; owner < strips.size(); ++owner)
        if (!strips[owner].empty()) order.push_back(owner);
    core::sort(order, [&](std::size_t a, std::size_t b) { return strips[a].first < strips[b].first; });
    std::size_t at = 0;
    for (const std::size_t owner : order) at = strips[owner].first == at ? strips[owner].last : nowhere;
    if (at != n)
        core::fail(core::text("the strips do not cover ", n, " elements once"),
                   "cut 0 .. n-1 into one strip for each rank");

    const lane_tree tree{lanes};
    const bool direct = route == tree_route::direct || (route == tree_route::automatic && !is_halving(lanes) &&
                                                        tree.busiest(strips, true) < tree.busiest(strips, false));
    schedule out{direct              ? "tree reduce-scatter (direct)"
                 : is_halving(lanes) ? "tree reduce-scatter (halving)"
                                     : "tree reduce-scatter",
                 true, n};
    detail::tree_writer writer{rank, tree, n};
    for (const std::size_t owner : order) writer.strip(owner, strips[owner], direct);
    writer.write(out);
    return out;
}

LOCKSTEP_FUNCTION std::vector<parallel::block> deal_lanes(std::size_t ranks, std::size_t lanes) {
    std::vector<parallel::block> out(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) out[rank] = parallel::split(lanes, ranks, rank);
    return out;
}

LOCKSTEP_FUNCTION std::vector<parallel::block> tree_strips(std::span<const parallel::block> lanes, std::size_t n) {
    const bool halving = is_halving(lanes);
    std::vector<parallel::block> out(lanes.size());
    for (std::size_t rank = 0; rank < lanes.size(); ++rank)
        out[rank] = parallel::split(n, lanes.size(), halving ? mirrored(rank, lanes.size()) : rank, strip_grain);
    return out;
}

#endif

}  // namespace lockstep::collectives
