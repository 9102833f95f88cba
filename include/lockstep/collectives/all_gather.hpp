// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// All-gather in place of strips of any sizes: every rank holds its strip of data, afterwards every rank holds all of
// them. No addition.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// Cost per rank: p-1 messages in one round, (p-1) x own strip elements. The fewest rounds; every pair of ranks talks.
[[nodiscard, gnu::cold]] inline schedule direct_all_gather(std::size_t rank, std::span<const parallel::block> strips) {
    schedule out{"direct all-gather", true, total(strips)};
    const std::size_t ranks = strips.size();
    for (std::size_t distance = 1; distance < ranks; ++distance) {
        const std::size_t to = (rank + distance) % ranks;
        const std::size_t from = (rank + ranks - distance) % ranks;
        out.send(to, in_data(strips[rank]));
        out.receive(from, in_data(strips[from]));
    }
    out.end_round();
    return out;
}

/// Cost per rank: p-1 messages in p-1 rounds, n - strip[rank+1] elements: n(p-1)/p when strips are equal. Only
/// neighbours talk.
[[nodiscard, gnu::cold]] inline schedule ring_all_gather(std::size_t rank, std::span<const parallel::block> strips) {
    schedule out{"ring all-gather", true, total(strips)};
    const std::size_t ranks = strips.size();
    for (std::size_t round = 0; round + 1 < ranks; ++round) {
        out.send((rank + 1) % ranks, in_data(strips[(rank + ranks - round) % ranks]));
        out.receive((rank + ranks - 1) % ranks, in_data(strips[(rank + ranks - round - 1) % ranks]));
        out.end_round();
    }
    return out;
}

/// In which order of distances recursive doubling can send one range per round.
enum class doubling_order : std::uint8_t { outwards, inwards };

namespace detail {

/// What a rank holds before the round with this distance; nothing if that is not one range.
[[nodiscard, gnu::cold]] inline std::optional<parallel::block> doubled(std::span<const parallel::block> strips,
                                                                       std::size_t rank, std::size_t distance,
                                                                       doubling_order order) {
    const std::size_t ranks = strips.size();
    const bool outwards = order == doubling_order::outwards;
    const std::size_t first = outwards ? rank & ~(distance - 1) : rank & (2 * distance - 1);
    const std::size_t stride = outwards ? 1 : 2 * distance;
    const std::size_t end = outwards ? first + distance : ranks;
    parallel::block whole{};
    std::size_t sum = 0;
    for (std::size_t other = first; other < end; other += stride) {
        const parallel::block& strip = strips[other];
        if (strip.empty()) continue;
        if (sum == 0) whole = strip;
        if (strip.first < whole.first) whole.first = strip.first;
        if (strip.last > whole.last) whole.last = strip.last;
        sum += strip.size();
    }
    if (whole.size() != sum) return std::nullopt;
    return whole;
}

}  // namespace detail

/// Whether recursive doubling sends one range per round: a power of two of ranks whose strips lie in natural order
/// (distances 1, 2, ..) or in mirrored order (distances p/2, p/4, ..: the strips of the lane tree). Strips in another
/// order: nothing.
[[nodiscard, gnu::cold]] inline std::optional<doubling_order> can_double(std::span<const parallel::block> strips) {
    if (!std::has_single_bit(strips.size())) return std::nullopt;
    for (const auto order : {doubling_order::outwards, doubling_order::inwards}) {
        bool whole = true;
        for (std::size_t distance = 1; whole && distance < strips.size(); distance *= 2)
            for (std::size_t rank = 0; whole && rank < strips.size(); ++rank)
                whole = detail::doubled(strips, rank, distance, order).has_value();
        if (whole) return order;
    }
    return std::nullopt;
}

/// Cost per rank: log2(p) messages, n(p-1)/p elements when strips are equal. Needs can_double(strips).
[[nodiscard, gnu::cold]] schedule doubling_all_gather(std::size_t rank, std::span<const parallel::block> strips);

/// Doubling for any number of ranks and strips of any lengths: in round k a rank has those of 2^k ranks, itself and the
/// ones after it, and sends them on (Bruck et al. 1997, in place). Strips that touch in data travel as one message.
/// Cost per rank: ceil(log2 p) rounds, n - own strip elements: n(p-1)/p when strips are equal. Strips in natural order:
/// at most 2 messages in a round; others: one for each run of strips.
[[nodiscard, gnu::cold]] schedule bruck_all_gather(std::size_t rank, std::span<const parallel::block> strips);

/// Strips of `each` elements, those of rank 0 first.
[[nodiscard, gnu::cold]] std::vector<parallel::block> equal_strips(std::size_t ranks, std::size_t each);

/// Up to so many ranks talk directly where doubling does not fit; more take the rounds of Bruck.
inline constexpr std::size_t direct_ranks = 16;

/// The one that fits these strips: recursive doubling, else direct, else Bruck's. All ranks choose alike: they see the
/// same strips. strips[r] is what rank r holds: disjoint, in any order, empty ones allowed.
[[nodiscard, gnu::cold]] schedule all_gather(std::size_t rank, std::span<const parallel::block> strips);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION schedule doubling_all_gather(std::size_t rank, std::span<const parallel::block> strips) {
    schedule out{"doubling all-gather", true, total(strips)};
    const auto order = can_double(strips);
    if (!order)
        core::fail(core::text("recursive doubling over the strips of ", strips.size(),
                              " ranks would send several ranges at once"),
                   "use all_gather(), or strips in natural or mirrored order on a power of two of ranks");
    const std::size_t ranks = strips.size();
    for (std::size_t step = 1; step < ranks; step *= 2) {
        const std::size_t distance = *order == doubling_order::outwards ? step : ranks / (2 * step);
        const std::size_t peer = rank ^ distance;
        out.send(peer, in_data(*detail::doubled(strips, rank, distance, *order)));
        out.receive(peer, in_data(*detail::doubled(strips, peer, distance, *order)));
        out.end_round();
    }
    return out;
}

LOCKSTEP_FUNCTION schedule bruck_all_gather(std::size_t rank, std::span<const parallel::block> strips) {
    schedule out{"Bruck all-gather", true, total(strips)};
    const std::size_t ranks = strips.size();
    // The strips of `count` ranks from `first` on; both ends see the same ones.
    const auto runs = [&](std::size_t first, std::size_t count, auto&& each) {
        parallel::block run{};
        for (std::size_t k = 0; k < count; ++k) {
            const parallel::block& strip = strips[(first + k) % ranks];
            if (strip.empty()) continue;
            if (!run.empty() && run.last == strip.first) {
                run.last = strip.last;
                continue;
            }
            if (!run.empty()) each(in_data(run));
            run = strip;
        }
        if (!run.empty()) each(in_data(run));
    };
    for (std::size_t have = 1; have < ranks; have *= 2) {
        const std::size_t count = have < ranks - have ? have : ranks - have;
        const std::size_t to = (rank + ranks - have) % ranks, from = (rank + have) % ranks;
        runs(rank, count, [&](range what) { out.send(to, what); });
        runs(from, count, [&](range what) { out.receive(from, what); });
        out.end_round();
    }
    return out;
}

LOCKSTEP_FUNCTION std::vector<parallel::block> equal_strips(std::size_t ranks, std::size_t each) {
    (void)core::checked_product("elements of all strips", ranks, each);
    std::vector<parallel::block> out;
    for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back({rank * each, (rank + 1) * each});
    return out;
}

LOCKSTEP_FUNCTION schedule all_gather(std::size_t rank, std::span<const parallel::block> strips) {
    if (can_double(strips)) return doubling_all_gather(rank, strips);
    return strips.size() <= direct_ranks ? direct_all_gather(rank, strips) : bruck_all_gather(rank, strips);
}

#endif

}  // namespace lockstep::collectives
