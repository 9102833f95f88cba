// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Messages between one rank of a group and others: gather, scatter, and a single message.
// Tested by tests/unit/collectives/gather.cpp.

#include <cstddef>
#include <span>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// The data of rank `from`, n elements, to that of rank `to`. Nothing for others.
[[nodiscard, gnu::cold]] inline schedule one_message(std::size_t rank, std::size_t from, std::size_t to,
                                                     std::size_t n) {
    schedule out{"message", true, n};
    if (rank == from) out.send(to, in_data(0, n));
    if (rank == to) out.receive(from, in_data(0, n));
    out.end_round();
    return out;
}

/// The data of each rank to its strip of the root's, where the root's own strip is in place. Cost: p - 1 messages to
/// the root.
[[nodiscard, gnu::cold]] inline schedule gather(std::size_t rank, std::size_t root,
                                                std::span<const parallel::block> strips) {
    schedule out{"gather", true, total(strips)};
    if (rank != root) out.send(root, in_data(0, strips[rank].size()));
    for (std::size_t from = 0; from < strips.size() && rank == root; ++from)
        if (from != root) out.receive(from, in_data(strips[from]));
    out.end_round();
    return out;
}

/// The opposite: each strip of the root's data to its rank, where it is all of the data; the root's stays in place.
[[nodiscard, gnu::cold]] inline schedule scatter(std::size_t rank, std::size_t root,
                                                 std::span<const parallel::block> strips) {
    schedule out{"scatter", true, total(strips)};
    if (rank != root) out.receive(root, in_data(0, strips[rank].size()));
    for (std::size_t to = 0; to < strips.size() && rank == root; ++to)
        if (to != root) out.send(to, in_data(strips[to]));
    out.end_round();
    return out;
}

}  // namespace lockstep::collectives
