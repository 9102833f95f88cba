// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// All-to-all with unequal counts, by pairwise exchange: each rank has one block for each rank.

#include <bit>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// Where a rank's blocks lie in data: those it sends in the order of their receivers, after them those it receives in
/// the order of senders. counts[from * ranks + to] = elements of the block; a view of them, which must outlive the
/// layout.
class exchange_layout {
public:
    exchange_layout(std::size_t rank, std::size_t ranks, std::span<const std::size_t> counts)
        : rank_{rank}, ranks_{ranks}, counts_{counts} {
        if (counts.size() != ranks * ranks || rank >= ranks)
            core::fail(core::text("an exchange among ", ranks, " ranks with ", counts.size(),
                                  " counts, seen from rank ", rank),
                       "pass ranks x ranks counts, row by row of senders");
    }

    [[nodiscard]] parallel::block outgoing(std::size_t to) const noexcept;
    [[nodiscard]] parallel::block incoming(std::size_t from) const noexcept;
    [[nodiscard]] std::size_t data_size() const noexcept { return incoming(ranks_ - 1).last; }

private:
    [[nodiscard]] std::size_t count(std::size_t from, std::size_t to) const noexcept {
        return counts_[from * ranks_ + to];
    }

    std::size_t rank_;
    std::size_t ranks_;
    std::span<const std::size_t> counts_;
};

/// After: every block has arrived where exchange_layout says; the own block is copied.
/// Cost per rank: p-1 messages (fewer if blocks are empty), one in each of p-1 rounds, and its outgoing elements
/// without the own block.
[[nodiscard, gnu::cold]] schedule all_to_all(std::size_t rank, std::size_t ranks, std::span<const std::size_t> counts);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION parallel::block exchange_layout::outgoing(std::size_t to) const noexcept {
    std::size_t first = 0;
    for (std::size_t other = 0; other < to; ++other) first += count(rank_, other);
    return {first, first + count(rank_, to)};
}

LOCKSTEP_FUNCTION parallel::block exchange_layout::incoming(std::size_t from) const noexcept {
    std::size_t first = outgoing(ranks_ - 1).last;
    for (std::size_t other = 0; other < from; ++other) first += count(other, rank_);
    return {first, first + count(from, rank_)};
}

LOCKSTEP_FUNCTION schedule all_to_all(std::size_t rank, std::size_t ranks, std::span<const std::size_t> counts) {
    schedule out{"pairwise all-to-all", true, std::accumulate(counts.begin(), counts.end(), std::size_t{0})};
    const exchange_layout layout{rank, ranks, counts};
    out.copy(in_data(layout.incoming(rank)), in_data(layout.outgoing(rank)));
    for (std::size_t round = 1; round < ranks; ++round) {
        const bool pairs = std::has_single_bit(ranks);
        const std::size_t to = pairs ? rank ^ round : (rank + round) % ranks;
        const std::size_t from = pairs ? rank ^ round : (rank + ranks - round) % ranks;
        out.send(to, in_data(layout.outgoing(to)));
        out.receive(from, in_data(layout.incoming(from)));
        out.end_round();
    }
    out.end_round();
    return out;
}

#endif

}  // namespace lockstep::collectives
