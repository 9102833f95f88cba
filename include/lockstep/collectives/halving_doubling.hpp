// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Recursive halving from the largest distance, then doubling (Rabenseifner 2004): the usual all-reduce of long vectors,
// for comparison. Its order of additions depends on the number of ranks: not invariant. The lane tree halves from
// distance 1 instead, for the same cost (collectives/tree.hpp).

#include <bit>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/collectives/concept.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

namespace detail {

/// The largest power of two of ranks takes part; each of the `excess` others gives its vector to the even rank before
/// it.
struct halving_ranks {
    std::size_t parts = 1;
    std::size_t excess = 0;

    explicit halving_ranks(std::size_t ranks) noexcept : parts{std::bit_floor(ranks)}, excess{ranks - parts} {}
    [[nodiscard]] bool sits_out(std::size_t rank) const noexcept { return rank < 2 * excess && rank % 2 == 1; }
    [[nodiscard]] bool has_guest(std::size_t rank) const noexcept { return rank < 2 * excess && rank % 2 == 0; }
    [[nodiscard]] std::size_t number(std::size_t rank) const noexcept {
        return rank < 2 * excess ? rank / 2 : rank - excess;
    }
    [[nodiscard]] std::size_t rank(std::size_t number) const noexcept {
        return number < excess ? 2 * number : number + excess;
    }
};

}  // namespace detail

/// The strip of each rank after halving_reduce_scatter(): equal ones in natural order, none for the ranks beyond a
/// power of two.
[[nodiscard, gnu::cold]] inline std::vector<parallel::block> halving_strips(std::size_t ranks, std::size_t n) {
    const detail::halving_ranks who{ranks};
    std::vector<parallel::block> out(ranks);
    for (std::size_t number = 0; number < who.parts; ++number)
        out[who.rank(number)] = parallel::split(n, who.parts, number);
    return out;
}

/// Before: data is this rank's n-vector. After: data[halving_strips(ranks, n)[rank]] is the sum over all ranks; the
/// rest is used up. Cost per rank on a power of two of ranks: log2(p) messages, n(p-1)/p elements, scratch n/2.
/// Otherwise the ranks beyond it send n elements in a round before that; scratch n.
[[nodiscard, gnu::cold]] inline schedule halving_reduce_scatter(std::size_t rank, std::size_t ranks, std::size_t n) {
    schedule out{"halving reduce-scatter", false, n};
    const detail::halving_ranks who{ranks};
    if (who.sits_out(rank)) {
        out.send(rank - 1, in_data(0, n));
        out.end_round();
        return out;
    }
    if (who.has_guest(rank)) {
        out.receive(rank + 1, in_work(0, n));
        out.add(in_data(0, n), in_work(0, n));
        out.end_round();
    }
    const auto strips = [&](std::size_t first, std::size_t count) {
        return parallel::block{parallel::split(n, who.parts, first).first,
                               parallel::split(n, who.parts, first + count - 1).last};
    };
    const std::size_t number = who.number(rank);
    for (std::size_t distance = who.parts / 2; distance > 0; distance /= 2) {
        const std::size_t peer = number ^ distance;
        const auto kept = strips(number & ~(distance - 1), distance);
        out.send(who.rank(peer), in_data(strips(peer & ~(distance - 1), distance)));
        out.receive(who.rank(peer), in_work(0, kept.size()));
        out.add(in_data(kept), in_work(0, kept.size()));
        out.end_round();
    }
    return out;
}

/// Before: data[halving_strips(ranks, n)[rank]] is there. After: all of data[0, n) is, on every rank. No addition.
/// Cost per rank: log2(p) messages, n(p-1)/p elements; ranks beyond a power of two receive n in a round after that.
[[nodiscard, gnu::cold]] inline schedule halving_all_gather(std::size_t rank, std::size_t ranks, std::size_t n) {
    schedule out{"halving all-gather", true, n};
    const detail::halving_ranks who{ranks};
    if (who.sits_out(rank)) {
        out.receive(rank - 1, in_data(0, n));
        out.end_round();
        return out;
    }
    const std::size_t number = who.number(rank);
    const auto held = [&](std::size_t holder, std::size_t distance) {
        const std::size_t first = holder & ~(distance - 1);
        return in_data(
            {parallel::split(n, who.parts, first).first, parallel::split(n, who.parts, first + distance - 1).last});
    };
    for (std::size_t distance = 1; distance < who.parts; distance *= 2) {
        const std::size_t peer = number ^ distance;
        out.send(who.rank(peer), held(number, distance));
        out.receive(who.rank(peer), held(peer, distance));
        out.end_round();
    }
    if (who.has_guest(rank)) out.send(rank + 1, in_data(0, n));
    out.end_round();
    return out;
}

/// Both. Models AllReduce. Cost per rank on a power of two of ranks: 2 log2(p) messages, 2n(p-1)/p elements; else up to
/// 2 and n more. Equal bits on all ranks of one run, not between numbers of ranks.
struct halving_doubling_all_reduce {
    static constexpr std::string_view name = "halving-doubling all-reduce";
    static constexpr bool invariant = false;

    [[nodiscard]] std::size_t data_size(std::size_t, std::size_t, std::size_t n) const noexcept { return n; }
    [[nodiscard]] schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        return schedule{halving_reduce_scatter(rank, ranks, n)}.then(halving_all_gather(rank, ranks, n));
    }
};
static_assert(AllReduce<halving_doubling_all_reduce>);

}  // namespace lockstep::collectives
