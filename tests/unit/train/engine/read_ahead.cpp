// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/train/engine/read_ahead.hpp"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::train {
namespace {

struct rooms {
    int swaps = 0;
    void swap() noexcept { ++swaps; }
};

TEST_CASE("train/read_ahead: the minibatches that were begun, in their order, each once", "[train]") {
    for (const bool ahead : {false, true}) {
        struct call {
            std::uint64_t epoch;
            std::size_t position;
            bool ahead;
            std::thread::id thread;
        };
        std::vector<call> calls;
        const auto load = [&](const step_place& at, bool spare) {
            calls.push_back({at.epoch, at.position, spare, std::this_thread::get_id()});
            return 100 * at.epoch + at.position;
        };
        rooms two;
        {
            read_ahead minibatches{load, ahead};
            for (std::size_t i = 0; i < 1000; ++i) {
                CHECK(minibatches.take({i / 10, i % 10}, two) == 100 * (i / 10) + i % 10);
                if (i < 999) minibatches.begin({(i + 1) / 10, (i + 1) % 10});
            }
        }
        REQUIRE(calls.size() == 1000);
        CHECK(two.swaps == (ahead ? 999 : 0));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < 1000; ++i)
            wrong += calls[i].epoch != i / 10 || calls[i].position != i % 10 || calls[i].ahead != (ahead && i > 0) ||
                     (calls[i].thread == std::this_thread::get_id()) != !(ahead && i > 0);
        CHECK(wrong == 0);
    }
}

TEST_CASE("train/read_ahead: loops of a team that is in use elsewhere are run by the reading thread alone", "[train]") {
    std::vector<std::thread::id> who(4);
    const auto load = [&](const step_place&, bool) {
        parallel::for_each({4}, who.size(),
                           [&](std::size_t index) noexcept { who[index] = std::this_thread::get_id(); });
        return 0;
    };
    rooms two;
    read_ahead minibatches{load, true};
    minibatches.begin({0, 0});
    (void)minibatches.take({0, 0}, two);
    CHECK(who[0] != std::this_thread::get_id());
    for (const auto& one : who) CHECK(one == who[0]);
}

TEST_CASE("train/read_ahead: an error is thrown by the take that wanted the minibatch, and the next one works",
          "[train]") {
    const auto load = [&](const step_place& at, bool) {
        if (at.position == 3) throw std::invalid_argument{"three"};
        if (at.position == 4) throw 4;
        return at.position;
    };
    rooms two;
    read_ahead minibatches{load, true};
    minibatches.begin({0, 3});
    CHECK_THROWS_AS(minibatches.take({0, 3}, two), std::invalid_argument);
    minibatches.begin({0, 4});
    CHECK_THROWS_AS(minibatches.take({0, 4}, two), int);
    minibatches.begin({0, 5});
    CHECK(minibatches.take({0, 5}, two) == 5);
    CHECK(minibatches.take({0, 6}, two) == 6);  // nothing was begun
    CHECK_THROWS_AS(minibatches.take({0, 3}, two), std::invalid_argument);
    CHECK(two.swaps == 1);
}

TEST_CASE("train/read_ahead: what is being read when it is no longer wanted is waited for, its error dropped",
          "[train]") {
    std::atomic<bool> begun{false};
    bool ended = false;  // no lock: the thread is gone when it is looked at
    const auto load = [&](const step_place&, bool ahead) {
        if (!ahead) return 1;
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds{30});
        ended = true;
        throw std::runtime_error{"too late"};
    };
    {
        read_ahead minibatches{load, true};
        rooms two;
        CHECK(minibatches.take({0, 0}, two) == 1);
        minibatches.begin({0, 1});
        while (!begun) std::this_thread::yield();
    }
    CHECK(ended);
    const read_ahead unused{load, true};  // ends as well
}

std::atomic<int> handled{0};
std::atomic<bool> on_side{false};
std::thread::id caller;

TEST_CASE("train/read_ahead: signals of the application reach its own threads", "[train]") {
    caller = std::this_thread::get_id();
    auto* const before = std::signal(SIGUSR1, [](int) {
        if (std::this_thread::get_id() != caller) on_side = true;
        ++handled;
    });
    const auto load = [&](const step_place&, bool) { return kill(getpid(), SIGUSR1); };
    rooms two;
    {
        read_ahead minibatches{load, true};
        minibatches.begin({0, 0});
        CHECK(minibatches.take({0, 0}, two) == 0);
    }
    std::signal(SIGUSR1, before);
    CHECK(handled == 1);
    CHECK(!on_side);
}

}  // namespace
}  // namespace lockstep::train
