// SPDX-License-Identifier: BSD-3-Clause
// The order of a parameter server: random learners, and what holds for all of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "lockstep/sync/sequencer.hpp"

namespace {

namespace sync = lockstep::sync;
using kind = sync::server_event::kind;

/// A round in which learners end in a random order; `stops`: after so many gradients.
std::vector<sync::server_event> random_round(std::size_t learners, std::uint64_t first, std::uint64_t count,
                                             std::optional<std::uint64_t> bound, std::mt19937& random,
                                             std::optional<std::size_t> stops = {}, std::int64_t signal = 0) {
    sync::sequencer desk;
    desk.begin(learners, first, count, bound);
    desk.start_all(0);
    std::vector<sync::server_event> busy;
    std::size_t heard = 0, sent = 0;
    for (;;) {
        for (; heard < desk.events().size(); ++heard)
            if (desk.events()[heard].what == kind::start) busy.push_back(desk.events()[heard]);
        if (busy.empty()) break;
        const std::size_t next = random() % busy.size();
        const sync::server_event one = busy[next];
        busy.erase(busy.begin() + static_cast<std::ptrdiff_t>(next));
        auto gradient = one.gradient;
        ++sent;
        if (stops && sent == *stops) {
            gradient.signal = signal;
            if (signal == 0) desk.stop();
        }
        desk.sent(one.learner, gradient, static_cast<double>(sent));
    }
    return {desk.events().begin(), desk.events().end()};
}

}  // namespace

TEST_CASE("sync/sequencer: each minibatch is one update, and no learner is ahead of its bound", "[sync]") {
    std::mt19937 random{7};
    for (int round = 0; round < 2000; ++round) {
        const std::size_t learners = 1 + random() % 9;
        const std::uint64_t first = random() % 100, count = random() % 40;
        const auto bound =
            random() % 2 == 0 ? std::optional<std::uint64_t>{} : std::optional<std::uint64_t>{random() % 4};
        const auto events = random_round(learners, first, count, bound, random);
        std::vector<std::uint64_t> sent(learners);
        std::set<std::uint64_t> minibatches;
        std::uint64_t updates = first;
        REQUIRE(events.back().what == kind::end);
        for (std::size_t i = 0; i < events.size(); ++i) {
            const auto& one = events[i];
            REQUIRE(one.version == updates);
            if (one.what == kind::start) {
                REQUIRE(one.gradient.version == updates);
                REQUIRE(one.gradient.minibatch >= first);
                REQUIRE(one.gradient.minibatch < first + count);
                REQUIRE(minibatches.insert(one.gradient.minibatch).second);
                if (bound) REQUIRE(sent[one.learner] - std::ranges::min(sent) <= *bound);
            } else if (one.what == kind::update) {
                ++updates;
                ++sent[one.learner];
            } else {
                REQUIRE(i + 1 == events.size());
            }
        }
        REQUIRE(updates == first + count);
        REQUIRE(minibatches.size() == count);
    }
}

TEST_CASE("sync/sequencer: what is under way counts after a stop, and the signal is in the end", "[sync]") {
    std::mt19937 random{11};
    for (const std::int64_t signal : {0, 15}) {
        const auto events = random_round(4, 10, 100, {}, random, 6, signal);
        std::size_t starts = 0, updates = 0;
        for (const auto& one : events) {
            starts += one.what == kind::start ? 1 : 0;
            updates += one.what == kind::update ? 1 : 0;
        }
        CHECK(starts == updates);
        CHECK(updates == 9);  // 6, and the three that the others had begun
        CHECK(events.back().gradient.signal == signal);
    }
}
