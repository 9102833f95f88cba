// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A sum in two levels: inside every node of the cluster, between the nodes, inside again, each vector crossing a slow
// link as seldom as it can.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/concept.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/collectives/recursive_doubling.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::collectives {

/// What is done between the hosts: the tree's reduce-scatter and an all-gather, or whole strips by recursive doubling.
enum class between_hosts : std::uint8_t { tree, doubling };

/// The ranks of each host, hosts in the order of their lowest rank; on[r] is equal for ranks of one host, as from
/// group::hosts().
[[nodiscard, gnu::cold]] inline std::vector<std::vector<std::size_t>> ranks_of_hosts(
    std::span<const std::size_t> host_of) {
    std::vector<std::vector<std::size_t>> out;
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
        std::size_t host = 0;
        while (host < out.size() && host_of[out[host][0]] != host_of[rank]) ++host;
        if (host == out.size()) out.emplace_back();
        out[host].push_back(rank);
    }
    return out;
}

namespace detail {

/// The lanes of all ranks of a host, if they are one run.
[[nodiscard, gnu::cold]] inline bool joined_run(std::span<const parallel::block> runs,
                                                std::span<const std::size_t> ranks, parallel::block& out) {
    out = {};
    std::size_t sum = 0;
    for (const std::size_t rank : ranks) {
        if (runs[rank].empty()) continue;
        out = sum == 0 ? runs[rank]
                       : parallel::block{std::min(out.first, runs[rank].first), std::max(out.last, runs[rank].last)};
        sum += runs[rank].size();
    }
    return out.size() == sum;
}

/// Writes a schedule for ranks 0, 1, .. of a part, with n-vectors in its data, as one over other ranks and other ranges
/// of memory.
class part_writer {
public:
    part_writer(schedule& out, std::span<const std::size_t> peers, std::size_t n, std::span<const range> vectors,
                std::size_t work)
        : out_{out}, peers_{peers}, n_{n}, vectors_{vectors}, work_{work} {}

    [[gnu::cold]] void write(const schedule& part) const {
        for (const auto& round : part.rounds()) {
            for (std::size_t i = round.sends.first; i < round.sends.last; ++i)
                each_vector(part.sends()[i].what, [&](range what) { out_.send(peers_[part.sends()[i].peer], what); });
            for (std::size_t i = round.receives.first; i < round.receives.last; ++i)
                each_vector(part.receives()[i].what,
                            [&](range what) { out_.receive(peers_[part.receives()[i].peer], what); });
            for (std::size_t i = round.locals.first; i < round.locals.last; ++i) {
                const local_operation& operation = part.locals()[i];
                for (std::size_t at = 0; at < operation.to.count;) {
                    const std::size_t count =
                        std::min({operation.to.count - at, left(operation.to, at), left(operation.from, at)});
                    const range to = moved({operation.to.in, operation.to.first + at, count}),
                                from = moved({operation.from.in, operation.from.first + at, count});
                    if (operation.what == action::add)
                        out_.add(to, from);
                    else
                        out_.copy(to, from);
                    at += count;
                }
            }
            out_.end_round();
        }
    }

private:
    /// Messages of several vectors begin with a whole one on both sides, so both cut alike.
    template <class F>
    void each_vector(const range& what, F&& f) const {
        for (std::size_t at = 0; at < what.count; at += n_)
            f(moved({what.in, what.first + at, std::min(n_, what.count - at)}));
    }
    [[nodiscard]] std::size_t left(const range& what, std::size_t at) const noexcept {
        return what.in == space::work ? what.count - at : n_ - (what.first + at) % n_;
    }
    [[nodiscard]] range moved(range what) const noexcept {
        if (what.in == space::work) return {space::work, work_ + what.first, what.count};
        const range& vector = vectors_[what.first / n_];
        return {vector.in, vector.first + what.first % n_, what.count};
    }

    schedule& out_;
    std::span<const std::size_t> peers_;
    std::size_t n_;
    std::span<const range> vectors_;  // where each one lies here
    std::size_t work_;
};

}  // namespace detail

/// Whether the ranks of every host together hold one run of lanes: then a sum inside the hosts finishes nodes of the
/// lane tree.
[[nodiscard, gnu::cold]] inline bool keeps_lane_tree(std::span<const parallel::block> runs,
                                                     std::span<const std::size_t> host_of) {
    parallel::block run;
    for (const auto& ranks : ranks_of_hosts(host_of))
        if (!detail::joined_run(runs, ranks, run)) return false;
    return true;
}

/// The sum over all lanes, with the bits of lane_tree_sum(): reduce-scatter inside each host, over as many strips as
/// the smallest host has ranks; the owners of one strip on all hosts sum it between them; all-gather inside. Before and
/// after as for tree_reduce_scatter() and sum_halves. Throws core::error where keeps_lane_tree() is false:
/// by_hosts_sum() then gives a sum in another order. Cost of a host with aligned lanes on h hosts, over its slow link
/// in each direction: 2 n (h-1)/h elements by tree, n log2(h) by doubling, whatever the number of its ranks. That is
/// what the flat tree sends where all hosts have the same power of two of ranks in natural order; flat doubling sends
/// as many times as much as a host has ranks. Rounds on h hosts of m ranks, all powers of two: 2 log2(m) + 2 log2(h),
/// or 2 log2(m) + log2(h).
[[nodiscard, gnu::cold]] inline sum_halves hierarchical_sum(std::size_t rank, std::span<const parallel::block> runs,
                                                            std::size_t n, std::span<const std::size_t> host_of,
                                                            between_hosts between = between_hosts::tree) {
    if (host_of.size() != runs.size() || rank >= runs.size())
        core::fail(
            core::text("rank ", rank, " with ", runs.size(), " runs of lanes and ", host_of.size(), " host numbers"),
            "pass one run of lanes and one host for each rank");
    const auto hosts = ranks_of_hosts(host_of);
    std::vector<parallel::block> host_runs(hosts.size());
    std::size_t lanes = 0, rails = runs.size(), host = 0;
    for (std::size_t h = 0; h < hosts.size(); ++h) {
        if (!detail::joined_run(runs, hosts[h], host_runs[h]))
            core::fail(core::text("the ", hosts[h].size(), " ranks of the host of rank ", hosts[h][0],
                                  " hold lanes that are no single run"),
                       "number the ranks host by host (mpirun --map-by core), or use the tree");
        lanes += host_runs[h].size();
        rails = std::min(rails, hosts[h].size());
        if (host_of[hosts[h][0]] == host_of[rank]) host = h;
    }
    const auto& near = hosts[host];
    std::size_t local = 0;
    while (near[local] != rank) ++local;
    // In the order of the tree's own strips, so that halving and doubling inside a host send one range at a time.
    std::vector<parallel::block> strips(near.size());
    for (std::size_t j = 0; j < rails; ++j)
        strips[j] = parallel::split(n, rails, std::has_single_bit(rails) ? mirrored(j, rails) : j, strip_grain);
    const parallel::block strip = strips[local];

    sum_halves out{{strip.first, strip.first},
                   schedule{"hierarchical sum", true, n},
                   schedule{"hierarchical all-gather", true, n}};
    // A node of the host's lanes, as this rank has it: the first of its own vectors inside, or room for the strip in
    // scratch.
    const auto nodes = tensor::cover(host_runs[host], lanes);
    std::vector<range> vectors(nodes.size());
    std::size_t slot = 0, room = 0;
    std::vector<std::vector<parallel::block>> inside(nodes.size(), std::vector<parallel::block>(near.size()));
    for (std::size_t x = 0; x < nodes.size(); ++x) {
        for (std::size_t j = 0; j < near.size(); ++j) {
            const std::size_t first = std::max(runs[near[j]].first, nodes[x].first);
            const std::size_t last = std::min(runs[near[j]].last, nodes[x].first + nodes[x].count);
            if (first < last) inside[x][j] = {first - nodes[x].first, last - nodes[x].first};
        }
        const std::size_t mine = tensor::cover(inside[x][local], nodes[x].count).size();
        if (!inside[x][local].empty()) {
            vectors[x] = in_data(slot * n, n);
            slot += mine;
        } else {
            vectors[x] = in_work(room, strip.size());
            room += strip.size();
        }
    }
    for (std::size_t x = 0; x < nodes.size(); ++x) {
        std::vector<range> own;
        if (vectors[x].in == space::data)
            for (std::size_t s = 0;
                 s < std::max<std::size_t>(1, tensor::cover(inside[x][local], nodes[x].count).size()); ++s)
                own.push_back(in_data(vectors[x].first + s * n, n));
        else  // only the strip is ever written
            own.push_back({space::work, vectors[x].first - strip.first, n});
        detail::part_writer{out.sum, near, n, own, room}.write(tree_reduce_scatter(local, inside[x], n, strips));
    }
    if (!strip.empty()) {
        std::vector<std::size_t> rail;
        for (const auto& ranks : hosts) rail.push_back(ranks[local]);
        std::vector<range> own;
        for (const range& piece : vectors)
            own.push_back({piece.in, piece.first + (piece.in == space::data ? strip.first : 0), strip.size()});
        if (own.empty()) own.push_back(in_data(strip));  // a host without lanes
        const auto parts = tree_strips(host_runs, strip.size());
        const bool whole = between == between_hosts::doubling;
        const detail::part_writer writer{out.sum, rail, strip.size(), own, room};
        writer.write(whole ? doubling_sum(host, host_runs, strip.size())
                           : tree_reduce_scatter(host, host_runs, strip.size(), parts));
        const parallel::block part = whole ? parallel::block{0, strip.size()} : parts[host];
        out.owned = {strip.first + part.first, strip.first + part.last};
        const range result{own[0].in, own[0].first + part.first, part.size()};
        if (result != in_data(out.owned)) out.sum.copy(in_data(out.owned), result);
        out.sum.end_round();
        const range target = in_data(strip);
        if (!whole) detail::part_writer{out.share, rail, strip.size(), {&target, 1}, 0}.write(all_gather(host, parts));
    }
    const range all = in_data(0, n);
    detail::part_writer{out.share, near, n, {&all, 1}, 0}.write(all_gather(local, strips));
    return out;
}

/// Runs of made-up lanes, one node for each rank and one subtree for each host.
[[nodiscard, gnu::cold]] inline std::vector<parallel::block> hosts_in_order(std::span<const std::size_t> host_of) {
    const auto hosts = ranks_of_hosts(host_of);
    std::size_t most = 1, at = 0;
    for (const auto& ranks : hosts) most = std::max(most, std::bit_ceil(ranks.size()));
    std::vector<parallel::block> out(host_of.size());
    for (const auto& ranks : hosts) {
        // The first ranks take a leaf each, the others two: together a power of two.
        const std::size_t leaves = std::bit_ceil(ranks.size()), ones = 2 * ranks.size() - leaves, unit = most / leaves;
        for (std::size_t j = 0; j < ranks.size(); ++j) {
            const std::size_t length = (j < ones ? 1 : 2) * unit;
            out[ranks[j]] = {at, at + length};
            at += length;
        }
    }
    return out;
}

/// The sum of one vector from each rank that adds the ranks of a host first, wherever its ranks and their lanes are:
/// hierarchical_sum() over hosts_in_order(). Not invariant: the order of additions depends on who is where.
[[nodiscard, gnu::cold]] inline sum_halves by_hosts_sum(std::size_t rank, std::size_t n,
                                                        std::span<const std::size_t> host_of,
                                                        between_hosts between = between_hosts::tree) {
    auto out = hierarchical_sum(rank, hosts_in_order(host_of), n, host_of, between);
    out.sum = schedule{"", false}.then(out.sum);
    return out;
}

/// Both halves, for lanes dealt as equally as possible. Models AllReduce. `on`: as from group::hosts().
struct hierarchical_all_reduce {
    static constexpr std::string_view name = "hierarchical all-reduce";
    static constexpr bool invariant = true;

    std::size_t lanes = 8;
    std::vector<std::size_t> on;
    between_hosts between = between_hosts::tree;

    [[nodiscard]] std::size_t data_size(std::size_t rank, std::size_t ranks, std::size_t n) const {
        return tree_data_size(parallel::split(lanes, ranks, rank), lanes, n);
    }
    [[nodiscard]] schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        auto both = hierarchical_sum(rank, deal_lanes(ranks, lanes), n, on, between);
        return both.sum.then(both.share);
    }
};
static_assert(AllReduce<hierarchical_all_reduce>);

}  // namespace lockstep::collectives
