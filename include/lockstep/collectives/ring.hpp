// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ring (Patarasuk, Yuan 2009): optimal volume between neighbours. Its order of additions depends on the number of
// ranks: not invariant.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/concept.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// Before: data is this rank's n-vector. After: data[strips[rank]] is the sum over all ranks, added from rank+1 around
/// the ring to rank. Cost per rank: p-1 messages in p-1 rounds, n - own strip elements; scratch of the longest strip.
[[nodiscard]] inline schedule ring_reduce_scatter(std::size_t rank, std::span<const parallel::block> strips) {
    schedule out{"ring reduce-scatter", false, total(strips)};
    const std::size_t ranks = strips.size();
    for (std::size_t round = 0; round + 1 < ranks; ++round) {
        const parallel::block leaving = strips[(rank + 2 * ranks - round - 1) % ranks];
        const parallel::block coming = strips[(rank + 2 * ranks - round - 2) % ranks];
        out.send((rank + 1) % ranks, in_data(leaving));
        out.receive((rank + ranks - 1) % ranks, in_work(0, coming.size()));
        out.add(in_data(coming), in_work(0, coming.size()));
        out.end_round();
    }
    return out;
}

/// All-reduce on a ring: reduce-scatter, then all-gather. Models AllReduce.
/// Cost per rank: 2(p-1) messages, 2n(p-1)/p elements. Equal bits on all ranks of one run, not between numbers of
/// ranks.
struct ring_all_reduce {
    static constexpr std::string_view name = "ring all-reduce";
    static constexpr bool invariant = false;

    [[nodiscard]] std::size_t data_size(std::size_t, std::size_t, std::size_t n) const noexcept { return n; }

    [[nodiscard]] schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        std::vector<parallel::block> strips(ranks);
        for (std::size_t owner = 0; owner < ranks; ++owner) strips[owner] = parallel::split(n, ranks, owner);
        return schedule{ring_reduce_scatter(rank, strips)}.then(ring_all_gather(rank, strips));
    }
};
static_assert(AllReduce<ring_all_reduce>);

}  // namespace lockstep::collectives
