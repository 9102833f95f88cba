// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The invariant all-reduce for short vectors: whole vectors travel, in the fewest rounds that exist, and are added
// along the lane tree.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/concept.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/collectives/reduction_tree.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

namespace detail {

/// Which nodes of the lane tree every rank has, round by round. What two ranks tell each other may overlap: a node has
/// the same bits wherever it was added, so the larger one replaces the smaller.
class node_exchange {
public:
    [[gnu::cold]] node_exchange(std::span<const parallel::block> lanes, std::size_t n)
        : tree_{lanes}, n_{n}, leaves_(tree_.nodes().size()), ranks_(lanes.size()) {
        const auto nodes = tree_.nodes();
        std::size_t leaf = 0;
        for (std::size_t v = 0; v < nodes.size(); ++v) {
            leaves_[v] = nodes[v].leaf() ? parallel::block{leaf, leaf + 1}
                                         : parallel::block{leaves_[nodes[v].left].first, leaves_[nodes[v].right].last};
            if (!nodes[v].leaf()) continue;
            ++leaf;
            state& owner = ranks_[nodes[v].rank];
            owner.known.push_back({v, owner.known.size()});
        }
        for (state& holder : ranks_) holder.own = std::max<std::size_t>(1, holder.known.size());
    }

    /// Writes the programs of ranks first, first + 1, ..; all ranks are followed, because what a rank is sent depends
    /// on what it and its peer have by then.
    [[gnu::cold]] void write(std::size_t first, std::span<schedule> out) {
        const std::size_t ranks = ranks_.size();
        const bool pairs = std::has_single_bit(ranks);
        const auto program = [&](std::size_t rank) { return rank - first < out.size() ? &out[rank - first] : nullptr; };
        std::vector<std::vector<held>> messages(ranks);
        for (std::size_t distance = 1; distance < ranks; distance *= 2) {
            const auto source = [&](std::size_t to) { return pairs ? to ^ distance : (to + distance) % ranks; };
            for (std::size_t to = 0; to < ranks; ++to) messages[to] = news(ranks_[source(to)], ranks_[to]);
            for (std::size_t to = 0; to < ranks; ++to) {
                if (auto* const from = program(source(to))) send(source(to), to, messages[to], *from);
                receive(source(to), to, messages[to], program(to));
                merge(ranks_[to], program(to));
            }
            for (schedule& written : out) written.end_round();
        }
        for (std::size_t i = 0; i < out.size(); ++i) {
            const state& mine = ranks_[first + i];
            if (mine.known[0].slot != 0) out[i].copy(in_data(0, n_), slot_range(mine, mine.known[0].slot, 1));
            out[i].end_round();
        }
    }

private:
    /// A node and where its vector lies: slots 0 .. own-1 are in data, those after them in scratch.
    struct held {
        std::size_t node;
        std::size_t slot;
    };
    /// Nodes in the order of their lanes, none inside another.
    struct state {
        std::vector<held> known;
        std::size_t own = 1;
    };

    [[nodiscard]] range slot_range(const state& holder, std::size_t slot, std::size_t count) const noexcept {
        return slot < holder.own ? in_data(slot * n_, count * n_) : in_work((slot - holder.own) * n_, count * n_);
    }
    [[nodiscard]] bool inside(std::size_t v, std::size_t w) const noexcept {
        return leaves_[w].first <= leaves_[v].first && leaves_[v].last <= leaves_[w].last;
    }

    /// What `from` has and `to` lacks.
    [[nodiscard, gnu::cold]] std::vector<held> news(const state& from, const state& to) const {
        std::vector<held> out;
        for (const held& candidate : from.known) {
            bool has = false;
            for (const held& other : to.known) has = has || inside(candidate.node, other.node);
            if (!has) out.push_back(candidate);
        }
        return out;
    }

    /// Neighbouring slots of the sender travel as one message: the receiver has room for all of them in a row.
    [[nodiscard]] static std::size_t end_of_run(const std::vector<held>& message, std::size_t first,
                                                std::size_t own) noexcept {
        std::size_t next = first + 1;
        while (next < message.size() && message[next].slot == message[next - 1].slot + 1 && message[next].slot != own)
            ++next;
        return next;
    }
    [[gnu::cold]] void send(std::size_t from, std::size_t to, const std::vector<held>& message, schedule& out) const {
        for (std::size_t i = 0, next = 0; i < message.size(); i = next) {
            next = end_of_run(message, i, ranks_[from].own);
            out.send(to, slot_range(ranks_[from], message[i].slot, next - i));
        }
    }

    /// The message goes to free slots; what it makes superfluous is free from the next round on.
    [[gnu::cold]] void receive(std::size_t from, std::size_t to, const std::vector<held>& message, schedule* out) {
        state& holder = ranks_[to];
        const std::size_t slot = room(holder, message.size());
        if (out != nullptr)
            for (std::size_t i = 0, next = 0; i < message.size(); i = next) {
                next = end_of_run(message, i, ranks_[from].own);
                out->receive(from, slot_range(holder, slot + i, next - i));
            }
        for (std::size_t i = 0; i < message.size(); ++i) {
            std::erase_if(holder.known, [&](const held& old) { return inside(old.node, message[i].node); });
            holder.known.push_back({message[i].node, slot + i});
        }
        core::sort(holder.known,
                   [this](const held& a, const held& b) { return leaves_[a.node].first < leaves_[b.node].first; });
    }

    /// The first `count` free slots in a row, all in data or all in scratch.
    [[nodiscard, gnu::cold]] static std::size_t room(const state& holder, std::size_t count) {
        std::size_t at = 0;
        for (bool fits = false; !fits;) {
            fits = !(at < holder.own && at + count > holder.own);
            for (const held& vector : holder.known) fits = fits && !(at <= vector.slot && vector.slot < at + count);
            if (!fits) ++at;
        }
        return at;
    }

    /// Adds siblings until none are left. The sum stays in the lower slot, so the result comes to lie at the front of
    /// data wherever it can.
    [[gnu::cold]] void merge(state& holder, schedule* out) const {
        for (std::size_t i = 0; i + 1 < holder.known.size();) {
            const held left = holder.known[i], right = holder.known[i + 1];
            const std::size_t parent = tree_.nodes()[left.node].parent;
            if (parent == nowhere || tree_.nodes()[right.node].parent != parent) {
                ++i;
                continue;
            }
            const held sum{parent, std::min(left.slot, right.slot)};
            if (out != nullptr)
                out->add(slot_range(holder, sum.slot, 1), slot_range(holder, std::max(left.slot, right.slot), 1));
            holder.known[i] = sum;
            holder.known.erase(holder.known.begin() + static_cast<std::ptrdiff_t>(i + 1));
            if (i > 0) --i;
        }
    }

    lane_tree tree_;
    std::size_t n_;
    std::vector<parallel::block> leaves_;  // of each node, counted from the left
    std::vector<state> ranks_;
};

}  // namespace detail

/// The sum over all lanes on every rank, with the bits of lane_tree_sum(), for any number of ranks and any deal of
/// lanes. Before: data[s n, (s+1) n) is node s of tensor::cover(runs[rank], lanes). After: data[0, n) is the sum; the
/// rest is used up. Cost per rank: ceil(log2 p) rounds, the fewest possible. Aligned lanes on a power of two of ranks:
/// log2(p) messages, n log2(p) elements, as many additions, scratch n (the butterfly of Ben-Nun, Hoefler 2019). Others:
/// in a round also the nodes that cannot be added yet, at most 2 log2(lanes) vectors, fewer the earlier. Which operand
/// is the left one does not matter: IEEE addition commutes.
[[nodiscard, gnu::cold]] inline schedule doubling_sum(std::size_t rank, std::span<const parallel::block> runs,
                                                      std::size_t n) {
    if (is_halving(runs)) return aligned_doubling_sum(rank, runs, n);
    schedule out{"doubling all-reduce", true, n};
    detail::node_exchange{runs, n}.write(rank, {&out, 1});
    return out;
}

/// doubling_sum() for lanes dealt as equally as possible. Models AllReduce.
struct doubling_all_reduce {
    static constexpr std::string_view name = "doubling all-reduce";
    static constexpr bool invariant = true;

    std::size_t lanes = 8;

    [[nodiscard]] std::size_t data_size(std::size_t rank, std::size_t ranks, std::size_t n) const {
        return tree_data_size(parallel::split(lanes, ranks, rank), lanes, n);
    }
    [[nodiscard]] schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        return doubling_sum(rank, deal_lanes(ranks, lanes), n);
    }
};
static_assert(AllReduce<doubling_all_reduce>);

}  // namespace lockstep::collectives
