// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sums of a trainer, tree and aligned doubling, which have the same bits, and the choice between them by cost. All
// others by name: sum_algorithms.hpp.
// Tested by tests/unit/collectives/tree.cpp.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// An all-reduce in two halves. sum: data[0, n), one vector for each node of the rank's lanes, comes to hold the result
/// in data[owned]. share: every rank gets what the others own. Strips of ranks are disjoint, or every rank owns
/// everything and share is empty.
struct sum_halves {
    parallel::block owned;
    schedule sum;
    schedule share;
};

/// doubling_sum() (collectives/recursive_doubling.hpp) where is_halving(runs): whole vectors at distances 1, 2, 4, ..,
/// added along the lane tree. Before: data is the vector of the rank's node. After: data[0, n) is the sum on every
/// rank. log2(p) messages, n log2(p) elements, scratch n.
[[nodiscard, gnu::cold]] inline schedule aligned_doubling_sum(std::size_t rank, std::span<const parallel::block> runs,
                                                              std::size_t n) {
    schedule out{"doubling all-reduce", true, n};
    for (std::size_t distance = 1; distance < runs.size(); distance *= 2) {
        out.send(rank ^ distance, in_data(0, n));
        out.receive(rank ^ distance, in_work(0, n));
        out.add(in_data(0, n), in_work(0, n));
        out.end_round();
    }
    return out;
}

/// A sum over all lanes by tree, or by doubling where is_halving(runs). Throws core::error for another algorithm or
/// deal of lanes.
[[nodiscard, gnu::cold]] sum_halves make_lane_sum(sum_algorithm algorithm, std::size_t rank,
                                                  std::span<const parallel::block> runs, std::size_t n,
                                                  std::span<const std::size_t>);

using sum_maker = sum_halves (*)(sum_algorithm, std::size_t rank, std::span<const parallel::block> runs, std::size_t n,
                                 std::span<const std::size_t> host_of);

/// Seconds of a sum as a function of its elements: fixed + each n.
struct cost_line {
    double fixed = 0;
    double each = 0;
};

/// The price of the busiest rank (of up to 8 ranks, spread over all of them), from two sizes that all ranks can cut.
[[nodiscard, gnu::cold]] cost_line cost_of(sum_maker make, sum_algorithm algorithm,
                                           std::span<const parallel::block> runs, std::size_t element_bytes,
                                           const cost_model& model);

/// Longer vectors than this many bytes are never chosen to travel whole: costs measured in a bad moment would else let
/// the state of an optimizer, which every rank then keeps, grow with the model.
inline constexpr std::size_t longest_doubling = std::size_t{1} << 16U;

/// The cheaper one of tree and doubling (up to longest_doubling) for each size. A pure function of its arguments: ranks
/// that were given the same ones have the same table. owner_seconds: for each element that an owner works on after the
/// sum (an optimizer): by doubling all ranks do that for all.
[[nodiscard, gnu::cold]] algorithm_table choose_lane_sum(std::span<const parallel::block> runs,
                                                         std::size_t element_bytes, const cost_model& model,
                                                         double owner_seconds);

/// The algorithms that a trainer can sum by, and the choice between those that keep the lane tree. A family of one's
/// own may hold others.
struct sum_family {
    sum_maker make;
    algorithm_table (*choose)(std::span<const parallel::block> runs, std::size_t element_bytes, const cost_model&,
                              double owner_seconds);
    sum_algorithm last;  ///< all from the first to this one

    [[nodiscard]] constexpr bool has(sum_algorithm algorithm) const noexcept { return algorithm <= last; }
};
/// tree and doubling. All of them: all_sums in collectives/sum_algorithms.hpp.
inline constexpr sum_family lane_tree_sums{&make_lane_sum, &choose_lane_sum, sum_algorithm::doubling};

/// Elements of a bucket, at least, where ranks share a host: there latency costs little, and little is hidden.
inline constexpr std::size_t usual_bucket = std::size_t{1} << 20U;

/// Between hosts the fewest elements of a bucket that spends at most 1/20 of its time on latency: a power of two, 2^14
/// to 2^22. So what can travel beside layers does, also over slow links.
[[nodiscard, gnu::cold]] inline std::size_t least_bucket(std::span<const parallel::block> runs,
                                                         std::size_t element_bytes, const cost_model& model) {
    if (!model.on.empty() && std::ranges::all_of(model.on, [&](std::size_t host) { return host == model.on[0]; }))
        return usual_bucket;
    const cost_line tree = cost_of(&make_lane_sum, sum_algorithm::tree, runs, element_bytes, model);
    std::size_t out = std::size_t{1} << 14U;
    while (out < std::size_t{1} << 22U && tree.fixed > (tree.fixed + tree.each * static_cast<double>(out)) / 20)
        out *= 2;
    return out;
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION sum_halves make_lane_sum(sum_algorithm algorithm, std::size_t rank,
                                           std::span<const parallel::block> runs, std::size_t n,
                                           std::span<const std::size_t>) {
    if (algorithm != sum_algorithm::tree && (algorithm != sum_algorithm::doubling || !is_halving(runs)))
        core::fail(core::text("a sum by ", name_of(algorithm), " over ", runs.back().last, " lanes of ", runs.size(),
                              " ranks"),
                   "use tree, or doubling on a power of two of ranks that each hold the same power of two of lanes");
    if (algorithm == sum_algorithm::doubling) return {{0, n}, aligned_doubling_sum(rank, runs, n), schedule{"", true}};
    const auto strips = tree_strips(runs, n);
    return {strips[rank], tree_reduce_scatter(rank, runs, n, strips), all_gather(rank, strips)};
}

LOCKSTEP_FUNCTION cost_line cost_of(sum_maker make, sum_algorithm algorithm, std::span<const parallel::block> runs,
                                    std::size_t element_bytes, const cost_model& model) {
    const std::size_t ranks = runs.size(), n = strip_grain * ranks * ranks, looks = std::min<std::size_t>(ranks, 8);
    double once = 0, twice = 0;
    for (std::size_t look = 0; look < looks; ++look) {
        const std::size_t rank = look * ranks / looks;
        for (const bool both : {false, true}) {
            const auto halves = make(algorithm, rank, runs, both ? 2 * n : n, model.on);
            const double seconds =
                price(halves.sum, rank, element_bytes, model) + price(halves.share, rank, element_bytes, model);
            (both ? twice : once) = std::max(both ? twice : once, seconds);
        }
    }
    return {std::max(0.0, 2 * once - twice), std::max(0.0, (twice - once) / static_cast<double>(n))};
}

LOCKSTEP_FUNCTION algorithm_table choose_lane_sum(std::span<const parallel::block> runs, std::size_t element_bytes,
                                                  const cost_model& model, double owner_seconds) {
    if (runs.size() == 1 || !is_halving(runs)) return {};
    const cost_line tree = cost_of(&make_lane_sum, sum_algorithm::tree, runs, element_bytes, model);
    cost_line whole = cost_of(&make_lane_sum, sum_algorithm::doubling, runs, element_bytes, model);
    whole.each += owner_seconds * (1 - 1 / static_cast<double>(runs.size()));
    if (!(whole.fixed < tree.fixed)) return {};
    std::size_t last = longest_doubling;
    if (tree.each < whole.each) {
        const double bytes = (tree.fixed - whole.fixed) / (whole.each - tree.each) * static_cast<double>(element_bytes);
        if (bytes < static_cast<double>(last)) last = static_cast<std::size_t>(bytes);
    }
    return algorithm_table{{{sum_algorithm::doubling, last}, {sum_algorithm::tree, algorithm_table::no_limit}}};
}

#endif

}  // namespace lockstep::collectives
