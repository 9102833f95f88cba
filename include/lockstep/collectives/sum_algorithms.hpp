// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Every algorithm of a sum by name, and the choice between those that keep the lane tree: by cost, so it never changes
// a bit.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/halving_doubling.hpp"
#include "lockstep/collectives/hierarchical.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/collectives/recursive_doubling.hpp"
#include "lockstep/collectives/ring.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::collectives {

/// A sum over all lanes by this algorithm, in two halves. `host_of`: as from group::hosts(), for the hierarchical one
/// only; where its hosts hold no single runs of lanes it throws core::error. Costs are those of the builders; ring and
/// halving-doubling first add the rank's own nodes.
[[nodiscard, gnu::cold]] inline sum_halves make_sum(sum_algorithm algorithm, std::size_t rank,
                                                    std::span<const parallel::block> runs, std::size_t n,
                                                    std::span<const std::size_t> host_of) {
    if (algorithm == sum_algorithm::hierarchical) return hierarchical_sum(rank, runs, n, host_of);
    if (algorithm == sum_algorithm::doubling) return {{0, n}, doubling_sum(rank, runs, n), schedule{"", true}};
    if (algorithm == sum_algorithm::tree) return make_lane_sum(algorithm, rank, runs, n, host_of);
    const std::size_t ranks = runs.size();
    std::size_t lanes = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        lanes += runs[r].size();
        // A rank without lanes would bring zeros, and no schedule writes values.
        if (runs[r].empty())
            core::fail(core::text("rank ", r, " of ", ranks, " has no lanes for the ", name_of(algorithm), " sum"),
                       "use at least as many lanes as ranks, or the tree");
    }
    schedule sum{"", false};
    for (std::size_t node = 1; node < tensor::cover(runs[rank], lanes).size(); ++node)
        sum.add(in_data(0, n), in_data(node * n, n));
    sum.end_round();
    if (algorithm == sum_algorithm::ring) {
        std::vector<parallel::block> strips(ranks);
        for (std::size_t owner = 0; owner < ranks; ++owner)
            strips[owner] = parallel::split(n, ranks, owner, strip_grain);
        return {strips[rank], std::move(sum.then(ring_reduce_scatter(rank, strips))), ring_all_gather(rank, strips)};
    }
    return {halving_strips(ranks, n)[rank], std::move(sum.then(halving_reduce_scatter(rank, ranks, n))),
            halving_all_gather(rank, ranks, n)};
}

/// The cheapest of tree, doubling (up to longest_doubling) and, over several hosts of which some have several ranks,
/// hierarchical, for each size. A pure function of its arguments: ranks that were given the same ones have the same
/// table. The tree, and then doubling, wins where prices are equal. owner_seconds: for each element that an owner works
/// on after the sum (an optimizer): by doubling all ranks do that for all elements.
[[nodiscard, gnu::cold]] inline algorithm_table choose_algorithms(std::span<const parallel::block> runs,
                                                                  std::size_t element_bytes, const cost_model& model,
                                                                  double owner_seconds = 0) {
    std::vector<std::pair<sum_algorithm, cost_line>> all;
    const auto price_of = [&](sum_algorithm algorithm) {
        all.emplace_back(algorithm, cost_of(&make_sum, algorithm, runs, element_bytes, model));
    };
    price_of(sum_algorithm::tree);
    if (runs.size() > 1) {
        price_of(sum_algorithm::doubling);
        all.back().second.each += owner_seconds * (1 - 1 / static_cast<double>(runs.size()));
    }
    if (!model.on.empty()) {
        const auto hosts = ranks_of_hosts(model.on).size();
        if (hosts > 1 && hosts < runs.size() && keeps_lane_tree(runs, model.on)) price_of(sum_algorithm::hierarchical);
    }
    // Straight lines: the lowest at 0, then always the one that crosses first; without doubling from its limit on.
    const auto lower = [](const cost_line& a, const cost_line& b) {
        return a.fixed < b.fixed || (a.fixed == b.fixed && a.each < b.each);
    };
    std::size_t now = 0;
    for (std::size_t i = 1; i < all.size(); ++i)
        if (lower(all[i].second, all[now].second)) now = i;
    std::vector<algorithm_table::line> lines;
    for (std::size_t at = 0;;) {
        const bool whole = all[now].first == sum_algorithm::doubling;
        std::size_t next = now, last = whole ? longest_doubling : algorithm_table::no_limit;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const cost_line &current = all[now].second, &other = all[i].second;
            if (!(other.each < current.each) || (at > 0 && all[i].first == sum_algorithm::doubling)) continue;
            const double bytes =
                (other.fixed - current.fixed) / (current.each - other.each) * static_cast<double>(element_bytes);
            if (bytes < 0 || bytes >= static_cast<double>(last)) continue;
            next = i;
            last = static_cast<std::size_t>(bytes);
        }
        if (next == now && whole) {  // the cheapest of the others there
            const auto seconds = [&](std::size_t i) {
                return all[i].second.fixed + all[i].second.each * static_cast<double>(longest_doubling / element_bytes);
            };
            next = 0;
            for (std::size_t i = 1; i < all.size(); ++i)
                if (all[i].first != sum_algorithm::doubling && seconds(i) < seconds(next)) next = i;
        }
        if (last > at || lines.empty()) lines.push_back({all[now].first, last});
        if (next == now) break;
        at = last;
        now = next;
    }
    return algorithm_table{std::move(lines)};
}

/// All of them for a trainer: `plan{.., .all_reduce = "hierarchical:0-max", .sums = collectives::all_sums}`. Empty,
/// all_reduce then chooses by cost between tree, doubling and hierarchical. With ring and halving-doubling, on request
/// only, the bits depend on the number of ranks.
inline constexpr sum_family all_sums{&make_sum, &choose_algorithms, sum_algorithm::halving_doubling};

}  // namespace lockstep::collectives
