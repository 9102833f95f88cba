// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time of a collective before it runs, with ranks that wait for each other: the schedules of all of them over the
// links of a cost model.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::collectives {

/// Seconds until the last rank has finished, all starting at once; all[r] is the schedule of rank r, over elements of
/// `element_bytes`. Messages of a round leave one after the other and arrive one after the other; a round ends when all
/// its messages have left and arrived, then its additions run. Throws core::error where the schedules of the ranks do
/// not fit together. Cost: time proportional to the messages, once for each round that has to wait.
[[nodiscard, gnu::cold]] inline double predict(std::span<const schedule> all, std::size_t element_bytes,
                                               const cost_model& model) {
    const std::size_t ranks = all.size();
    struct rank_state {
        std::size_t round = 0;
        bool posted = false;
        double now = 0;                             // the round was begun, or the last one was over
        double sent = 0;                            // all messages of the round have left
        std::vector<std::vector<double>> arrivals;  // [sender][k]: the k-th message from there can be here
        std::vector<std::size_t> taken;             // [sender]: how many of them earlier rounds have received
    };
    std::vector<rank_state> at(ranks);
    for (auto& state : at) {
        state.arrivals.resize(ranks);
        state.taken.resize(ranks);
    }
    const auto seconds = [&](const message& transfer, std::size_t rank) {
        return static_cast<double>(transfer.what.count * element_bytes) *
               model.over(rank, transfer.peer).seconds_per_byte;
    };
    const auto post = [&](std::size_t rank) {
        rank_state& state = at[rank];
        const auto& round = all[rank].rounds()[state.round];
        state.sent = state.now;
        for (std::size_t i = round.sends.first; i < round.sends.last; ++i) {
            const auto& message = all[rank].sends()[i];
            state.sent += seconds(message, rank);
            at[message.peer].arrivals[rank].push_back(state.sent + model.over(rank, message.peer).latency);
        }
        state.posted = true;
    };
    // True if the round could be ended: everything that it receives is on the way.
    const auto end = [&](std::size_t rank) {
        rank_state& state = at[rank];
        const auto& round = all[rank].rounds()[state.round];
        auto taken = state.taken;
        double done = state.now;
        for (std::size_t i = round.receives.first; i < round.receives.last; ++i) {
            const auto& message = all[rank].receives()[i];
            auto& from = state.arrivals[message.peer];
            if (taken[message.peer] == from.size()) return false;
            done = std::max(done + seconds(message, rank), from[taken[message.peer]++]);
        }
        state.taken = taken;
        done = std::max(done, state.sent);
        for (std::size_t i = round.locals.first; i < round.locals.last; ++i)
            if (all[rank].locals()[i].what == action::add)
                done +=
                    static_cast<double>(all[rank].locals()[i].to.count * element_bytes) * model.seconds_per_added_byte;
        state.now = done;
        state.posted = false;
        ++state.round;
        return true;
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t rank = 0; rank < ranks; ++rank)
            while (at[rank].round < all[rank].rounds().size()) {
                if (!at[rank].posted) {
                    post(rank);
                    moved = true;
                }
                if (!end(rank)) break;
                moved = true;
            }
    }
    double last = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (at[rank].round != all[rank].rounds().size())
            core::fail(core::text("rank ", rank, " of ", ranks, " waits for ever in round ", at[rank].round,
                                  " of its schedule"),
                       "build all schedules with the same collective and sizes");
        last = std::max(last, at[rank].now);
    }
    return last;
}

}  // namespace lockstep::collectives
