// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sums of index-value streams over workers (SparCML): schedules whose elements are whole streams, what they cost, and
// the choice between them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/recursive_doubling.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// SSAR_Recursive_double and SSAR_Split_allgather of SparCML (Renggli et al., SC 2019). Both add over the tree of
/// workers, so they have equal bits.
enum class sparse_algorithm : std::uint8_t { recursive_doubling, split_all_gather };

[[nodiscard]] constexpr std::string_view name_of(sparse_algorithm which) noexcept {
    return which == sparse_algorithm::recursive_doubling ? "recursive doubling" : "split all-gather";
}

/// What the streams of one sum are.
struct stream_shape {
    std::size_t universe = 0;     ///< N
    std::size_t entries = 0;      ///< k of a worker, at most
    std::size_t value_bytes = 4;  ///< c; an index has 4

    [[nodiscard]] constexpr double entry_bytes() const noexcept { return 4.0 + static_cast<double>(value_bytes); }
};

/// E[K] = N (1 - (1 - k/N)^W): the entries of a sum over W workers, if each index is in a stream with equal
/// probability, independently. Streams of real gradients overlap more.
[[nodiscard]] inline double expected_union(double universe, double entries, std::size_t workers) noexcept {
    if (universe <= 0) return 0;
    return universe * -std::expm1(static_cast<double>(workers) * std::log1p(-std::min(1.0, entries / universe)));
}
/// Bytes of the values and indices of such a sum: those of a sparse stream, at most those of a dense one.
[[nodiscard]] inline double expected_bytes(const stream_shape& of, std::size_t workers) noexcept {
    const auto universe = static_cast<double>(of.universe);
    return std::min(expected_union(universe, static_cast<double>(of.entries), workers) * of.entry_bytes(),
                    universe * static_cast<double>(of.value_bytes));
}
/// E[K] >= delta = N c / (c + 4): a sum that is expected to turn dense. A function of (W, k, N) and the type of a
/// value.
[[nodiscard]] inline bool is_expected_dense(const stream_shape& of, std::size_t workers) noexcept {
    return of.universe > 0 &&
           expected_bytes(of, workers) >= static_cast<double>(of.universe) * static_cast<double>(of.value_bytes);
}

/// The sum over all workers on every rank. runs[r]: the workers whose streams rank r brings, disjoint, together 0 ..
/// W-1; ranks without workers get the result, too. Elements are streams. Before: data has a stream for each node of
/// tensor::cover(runs[rank], W). After: data[0] is the sum. Cost per rank: ceil(log2 p) rounds; on a power of two of
/// ranks with equally many workers log2(p) messages, of the bytes of the sums of W/p, 2W/p, .. workers.
[[nodiscard, gnu::cold]] inline schedule sparse_doubling(std::size_t rank, std::span<const parallel::block> runs) {
    return doubling_sum(rank, runs, 1);
}

/// The first half of the split all-gather: `parts` runs of indices, each with a stream of its own, of which rank r gets
/// the sums of owned[r]. Before: data[s parts + i] is part i of the rank's node s. After: data[i] is the sum for i in
/// owned[rank]. Every part goes straight to its owner. Cost per rank with c nodes: c (parts - own) messages in one
/// round.
[[nodiscard, gnu::cold]] inline schedule sparse_split(std::size_t rank, std::span<const parallel::block> runs,
                                                      std::span<const parallel::block> owned) {
    return tree_reduce_scatter(rank, runs, total(owned), owned, tree_route::direct);
}

/// The whole of it, with a part for each rank: data[0 .. p-1] are the sums. Cost per rank: c (p-1) messages in one
/// round, then p-1 in log2(p) rounds on a power of two of ranks (up to 16 others: in one).
[[nodiscard, gnu::cold]] inline schedule sparse_split_all_gather(std::size_t rank,
                                                                 std::span<const parallel::block> runs) {
    const auto owned = equal_strips(runs.size(), 1);
    schedule out = sparse_split(rank, runs, owned);
    out.then(all_gather(rank, owned));
    return out;
}

/// Expected bytes that each of p ranks sends in the first half of a split all-gather: (p-1)/p b(W/p).
[[nodiscard]] inline double split_bytes(const stream_shape& of, std::size_t workers, std::size_t ranks) noexcept {
    const std::size_t p = std::max<std::size_t>(1, std::min(ranks, workers));
    return static_cast<double>(p - 1) / static_cast<double>(p) * expected_bytes(of, (workers + p - 1) / p);
}

/// Bytes that a rank is expected to send, and the time that this takes: with m = W/p workers for each of p ranks and
/// b(m) the expected bytes of the sum of m workers,
///   recursive doubling  rounds R = ceil(log2 p): sum over r < R of b(m 2^r);  R alpha + bytes beta
///   split all-gather    (p-1)/p (b(m) + b(W));                                (p - 1 + R) alpha + bytes beta
/// and gamma for each byte that is added. Headers are left out.
struct sparse_cost {
    double bytes = 0;
    double seconds = 0;
};
[[nodiscard, gnu::cold]] sparse_cost cost_of(sparse_algorithm which, const stream_shape& of, std::size_t workers,
                                             std::size_t ranks, const cost_model& model);

/// The cheaper one. A pure function of its arguments: ranks that were given the same ones choose alike. Where nothing
/// was measured, links of 50 us and 1 Gbit/s are assumed.
[[nodiscard, gnu::cold]] sparse_algorithm choose_sparse(const stream_shape& of, std::size_t workers, std::size_t ranks,
                                                        const cost_model& model);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION sparse_cost cost_of(sparse_algorithm which, const stream_shape& of, std::size_t workers,
                                      std::size_t ranks, const cost_model& model) {
    ranks = std::min(ranks, workers);
    if (ranks <= 1) return {};
    const std::size_t each = (workers + ranks - 1) / ranks, rounds = std::bit_width(ranks - 1);
    const auto p = static_cast<double>(ranks);
    const bool doubles = which == sparse_algorithm::recursive_doubling;
    double bytes = 0, added = 0, messages = 0;
    if (doubles) {
        for (std::size_t round = 0; round < rounds; ++round)
            bytes += expected_bytes(of, std::min(workers, each << round));
        added = bytes;
        messages = static_cast<double>(rounds);
    } else {
        added = split_bytes(of, workers, ranks);
        bytes = added + (p - 1) / p * expected_bytes(of, workers);
        messages = p - 1 + static_cast<double>(rounds);
    }
    bool several = model.on.empty();
    for (const std::size_t host : model.on) several = several || host != model.on.front();
    const link& over = several ? model.between : model.inside;
    return {bytes, messages * over.latency + bytes * over.seconds_per_byte + added * model.seconds_per_added_byte};
}

LOCKSTEP_FUNCTION sparse_algorithm choose_sparse(const stream_shape& of, std::size_t workers, std::size_t ranks,
                                                 const cost_model& model) {
    cost_model known = model;
    if (!(model.between.latency > 0 || model.inside.latency > 0))
        known.between = known.inside = {.latency = 50e-6, .seconds_per_byte = 8e-9};
    const auto seconds = [&](sparse_algorithm which) { return cost_of(which, of, workers, ranks, known).seconds; };
    return seconds(sparse_algorithm::split_all_gather) < seconds(sparse_algorithm::recursive_doubling)
               ? sparse_algorithm::split_all_gather
               : sparse_algorithm::recursive_doubling;
}

#endif

}  // namespace lockstep::collectives
