// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Binomial trees: one vector from a root to all ranks, or the sum of all ranks' vectors to a root.

#include <cstddef>

#include "lockstep/collectives/schedule.hpp"

namespace lockstep::collectives {

/// Before: data of `root` holds n elements. After: data of every rank does. No addition.
/// Cost: ceil(log2 p) rounds; a rank receives once, n elements, and sends n to each of its children, the root to at
/// most ceil(log2 p).
[[nodiscard]] inline schedule binomial_broadcast(std::size_t rank, std::size_t ranks, std::size_t n,
                                                 std::size_t root = 0) {
    schedule out{"binomial broadcast", true, n};
    const std::size_t turned = (rank + ranks - root) % ranks;
    for (std::size_t distance = 1; distance < ranks; distance *= 2) {
        if (turned < distance && turned + distance < ranks)
            out.send((rank + distance) % ranks, in_data(0, n));
        else if (turned >= distance && turned < 2 * distance)
            out.receive((rank + ranks - distance) % ranks, in_data(0, n));
        out.end_round();
    }
    return out;
}

/// Before: data of every rank holds n elements. After: data of `root` is their sum, added in pairs at distances 1, 2,
/// 4, .. from the root; that of the others is used up. Not invariant: ranks are added, not lanes. Cost: ceil(log2 p)
/// rounds; every rank but the root sends once, n elements; scratch of n.
[[nodiscard]] inline schedule binomial_reduce(std::size_t rank, std::size_t ranks, std::size_t n,
                                              std::size_t root = 0) {
    schedule out{"binomial reduce", false, n};
    const std::size_t turned = (rank + ranks - root) % ranks;
    for (std::size_t distance = 1; distance < ranks; distance *= 2) {
        if (turned % (2 * distance) == distance) {
            out.send((rank + ranks - distance) % ranks, in_data(0, n));
            out.end_round();
            break;
        }
        if (turned + distance < ranks) {
            out.receive((rank + distance) % ranks, in_work(0, n));
            out.add(in_data(0, n), in_work(0, n));
        }
        out.end_round();
    }
    return out;
}

}  // namespace lockstep::collectives
