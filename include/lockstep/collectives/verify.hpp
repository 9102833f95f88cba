// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs the schedules of all ranks in one process, without MPI: proves that they fit together, and computes what they
// would compute.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::collectives {

namespace detail {

[[noreturn]] inline void reject(const std::string& problem) {
    throw core::error{problem, "correct the collective that wrote this schedule"};
}

/// Messages of one ordered pair of ranks: the k-th send belongs to the k-th receive.
struct channel {
    struct end {
        std::size_t round;
        std::size_t index;
    };
    std::vector<end> sends;
    std::vector<end> receives;
};

/// In one round nothing may be received into what is sent or received by another message, because all of them are under
/// way at once.
inline void check_round(std::size_t rank, const schedule& program, std::size_t number) {
    struct use {
        range what;
        bool receives;
    };
    const auto& round = program.rounds()[number];
    std::vector<use> uses;
    for (std::size_t i = round.sends.first; i < round.sends.last; ++i) uses.push_back({program.sends()[i].what, false});
    for (std::size_t i = round.receives.first; i < round.receives.last; ++i)
        uses.push_back({program.receives()[i].what, true});
    std::sort(uses.begin(), uses.end(), [](const use& a, const use& b) {
        return std::pair{a.what.in, a.what.first} < std::pair{b.what.in, b.what.first};
    });
    std::size_t any = 0;
    std::size_t received = 0;
    space in = space::data;
    for (const use& access : uses) {
        if (access.what.in != in) any = received = 0;
        in = access.what.in;
        if (access.what.first < (access.receives ? any : received))
            reject(core::text("rank ", rank, ", round ", number, ": a message arrives in elements from ",
                              access.what.first, " on of ", in == space::data ? "data" : "work",
                              " that another message of the round uses"));
        any = std::max(any, access.what.last());
        if (access.receives) received = std::max(received, access.what.last());
    }
    for (std::size_t i = round.locals.first; i < round.locals.last; ++i) {
        const auto& local = program.locals()[i];
        if (local.to.count != local.from.count || overlap(local.to, local.from))
            reject(core::text("rank ", rank, ", round ", number, ": a local operation from ", local.from.count, " to ",
                              local.to.count, " elements, which differ or overlap"));
    }
}

}  // namespace detail

/// Checks that the programs of all ranks fit together and reports each event in an order that could happen: post(rank,
/// i) = send i of the rank leaves, arrive(rank, i, peer, j) = its receive i gets send j of the peer, local(rank, i) =
/// its local operation i runs. A send waits for its receive, as if no message were ever buffered. Throws core::error:
/// peer that does not exist, unmatched message, unequal lengths, two uses of a range in one round, deadlock. Cost:
/// O(messages log(messages)).
template <class Post, class Arrive, class Local>
void replay(std::span<const schedule> programs, Post&& post, Arrive&& arrive, Local&& local) {
    const std::size_t ranks = programs.size();
    std::map<std::pair<std::size_t, std::size_t>, detail::channel> channels;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const schedule& program = programs[rank];
        for (std::size_t number = 0; number < program.rounds().size(); ++number) {
            detail::check_round(rank, program, number);
            const auto& round = program.rounds()[number];
            const auto peer = [&](const message& transfer) {
                if (transfer.peer >= ranks || transfer.peer == rank)
                    detail::reject(core::text("rank ", rank, " of ", ranks, ", round ", number,
                                              ": a message to or from rank ", transfer.peer));
                return transfer.peer;
            };
            for (std::size_t i = round.sends.first; i < round.sends.last; ++i)
                channels[{rank, peer(program.sends()[i])}].sends.push_back({number, i});
            for (std::size_t i = round.receives.first; i < round.receives.last; ++i)
                channels[{peer(program.receives()[i]), rank}].receives.push_back({number, i});
        }
    }

    struct match {
        std::size_t peer;
        std::size_t round;
        std::size_t index;
    };
    std::vector<std::vector<match>> sends(ranks);
    std::vector<std::vector<match>> receives(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        sends[rank].resize(programs[rank].sends().size());
        receives[rank].resize(programs[rank].receives().size());
    }
    for (const auto& [pair, channel] : channels) {
        const auto [from, to] = pair;
        if (channel.sends.size() != channel.receives.size())
            detail::reject(core::text("rank ", from, " sends ", channel.sends.size(), " messages to rank ", to,
                                      ", which receives ", channel.receives.size()));
        for (std::size_t k = 0; k < channel.sends.size(); ++k) {
            const auto& out = channel.sends[k];
            const auto& in = channel.receives[k];
            const std::size_t sent = programs[from].sends()[out.index].what.count;
            const std::size_t expected = programs[to].receives()[in.index].what.count;
            if (sent != expected)
                detail::reject(core::text("message ", k, " from rank ", from, " has ", sent, " elements, rank ", to,
                                          " expects ", expected));
            sends[from][out.index] = {to, in.round, in.index};
            receives[to][in.index] = {from, out.round, out.index};
        }
    }

    constexpr auto none = static_cast<std::size_t>(-1);
    std::vector<std::size_t> posted(ranks, none);  // last round whose messages are under way
    const auto start = [&](std::size_t rank, std::size_t number) {
        posted[rank] = number;
        if (number == programs[rank].rounds().size()) return;
        const auto& round = programs[rank].rounds()[number];
        for (std::size_t i = round.sends.first; i < round.sends.last; ++i) post(rank, i);
    };
    for (std::size_t rank = 0; rank < ranks; ++rank) start(rank, 0);
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::size_t number = posted[rank];
            if (number == programs[rank].rounds().size()) continue;
            const auto& round = programs[rank].rounds()[number];
            bool ready = true;
            for (std::size_t i = round.sends.first; ready && i < round.sends.last; ++i)
                ready = sends[rank][i].round <= posted[sends[rank][i].peer];
            for (std::size_t i = round.receives.first; ready && i < round.receives.last; ++i)
                ready = receives[rank][i].round <= posted[receives[rank][i].peer];
            if (!ready) continue;
            for (std::size_t i = round.receives.first; i < round.receives.last; ++i)
                arrive(rank, i, receives[rank][i].peer, receives[rank][i].index);
            for (std::size_t i = round.locals.first; i < round.locals.last; ++i) local(rank, i);
            start(rank, number + 1);
            moved = true;
        }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank)
        if (posted[rank] != programs[rank].rounds().size())
            detail::reject(core::text("rank ", rank, " waits for ever in round ", posted[rank], " of ",
                                      programs[rank].rounds().size()));
}

/// Only the proof that the programs fit together.
inline void verify(std::span<const schedule> programs) {
    replay(
        programs, [](std::size_t, std::size_t) {}, [](std::size_t, std::size_t, std::size_t, std::size_t) {},
        [](std::size_t, std::size_t) {});
}

/// The proof and the result: data[rank] is changed as the programs say. Returns what each rank sends.
/// Scratch begins as NaN, so that a value that was never written shows. Throws core::error also where data is too
/// short.
template <class T>
std::vector<traffic> simulate(std::span<const schedule> programs, std::span<std::vector<T>> data) {
    if (programs.size() != data.size())
        core::fail(core::text(programs.size(), " schedules and ", data.size(), " arrays"),
                   "pass one array for each rank");
    std::vector<std::vector<T>> work(programs.size());
    std::vector<std::vector<std::vector<T>>> messages(programs.size());
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
        if (programs[rank].data_size() > data[rank].size())
            core::fail(core::text("rank ", rank, " uses ", programs[rank].data_size(), " elements of an array of ",
                                  data[rank].size()),
                       "provide a longer array");
        T unset{};
        if constexpr (std::is_floating_point_v<T>) unset = std::numeric_limits<T>::quiet_NaN();
        work[rank].assign(programs[rank].work_size(), unset);
        messages[rank].resize(programs[rank].sends().size());
    }
    std::vector<traffic> sent(programs.size());
    const auto at = [&](std::size_t rank, const range& what) {
        return (what.in == space::data ? data[rank] : work[rank]).begin() + static_cast<std::ptrdiff_t>(what.first);
    };
    replay(
        programs,
        [&](std::size_t rank, std::size_t i) {
            const range& what = programs[rank].sends()[i].what;
            messages[rank][i].assign(at(rank, what), at(rank, what) + static_cast<std::ptrdiff_t>(what.count));
            sent[rank] += {1, what.count};
        },
        [&](std::size_t rank, std::size_t i, std::size_t peer, std::size_t j) {
            std::copy(messages[peer][j].begin(), messages[peer][j].end(), at(rank, programs[rank].receives()[i].what));
            messages[peer][j] = {};
        },
        [&](std::size_t rank, std::size_t i) {
            const auto& local = programs[rank].locals()[i];
            const auto from = at(rank, local.from);
            const auto to = at(rank, local.to);
            for (std::ptrdiff_t k = 0; k < static_cast<std::ptrdiff_t>(local.to.count); ++k) {
                if constexpr (requires(T a, T b) { a + b; })
                    to[k] = local.what == action::add ? static_cast<T>(to[k] + from[k]) : from[k];
                else if (local.what == action::copy)
                    to[k] = from[k];
                else
                    detail::reject("an addition in a schedule over elements that cannot be added");
            }
        });
    return sent;
}

}  // namespace lockstep::collectives
