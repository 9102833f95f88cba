// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A signal that asks a run to end after the step that it is in: noted in a handler, looked at once in each step.
// Tested by tests/failing_runs/stopping.

#include <time.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <limits>
#include <string>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// SIGTERM, or what a number stands for.
[[nodiscard, gnu::cold]] std::string name_of_signal(int number);

/// A run ended early, on all ranks alike, because a signal asked one of them for it.
class interrupted : public error {
public:
    /// `is_printed`: by this rank, the first of the run.
    [[gnu::cold]] interrupted(int signal, std::uint64_t steps, bool is_printed = true)
        : error{text("the run was told to end by ", name_of_signal(signal), " and ends after step ", steps),
                "go on from its last checkpoint, if it writes any"},
          signal_{signal},
          is_printed_{is_printed} {}
    /// Shells call it 128 + signal.
    [[nodiscard]] int exit_code() const noexcept { return 128 + signal_; }
    [[nodiscard]] bool is_printed() const noexcept { return is_printed_; }

private:
    int signal_;
    bool is_printed_;
};

/// Of this process. All members may be called in a handler.
class stop_request {
public:
    /// As long as it lives, somebody looks at signal() after each step.
    class listener {
    public:
        listener() noexcept {
            ++all().listeners;
            all().stopping_until.store(0, std::memory_order_relaxed);
        }
        listener(const listener&) = delete;
        listener& operator=(const listener&) = delete;
        ~listener() {
            all().step_began.store(0, std::memory_order_relaxed);
            --all().listeners;
        }

        using time = std::chrono::steady_clock::time_point;

        void step_begins(time now) noexcept {
            began_ = seconds(now);
            all().step_began.store(began_, std::memory_order_relaxed);
        }
        void step_ends(time now) noexcept {
            const double took = seconds(now) - began_;
            all().step_began.store(0, std::memory_order_relaxed);
            if (took > all().longest_step.load(std::memory_order_relaxed))
                all().longest_step.store(took, std::memory_order_relaxed);
        }
        /// All ranks have agreed to end: what is asked for now, and in the next seconds, comes too late to matter.
        void stops() noexcept { all().stopping_until.store(now() + 5, std::memory_order_relaxed); }

    private:
        /// As now() below counts them.
        [[nodiscard]] static double seconds(time when) noexcept {
            return std::chrono::duration<double>(when.time_since_epoch()).count();
        }
        double began_ = 0;
    };

    [[nodiscard]] static bool is_heard() noexcept { return all().listeners.load() > 0; }
    /// What was asked for; 0: nothing.
    [[nodiscard]] static int signal() noexcept { return all().number.load(std::memory_order_relaxed); }
    static void ask(int number) noexcept {
        if (all().number.exchange(number, std::memory_order_relaxed) != number)
            all().asked.store(now(), std::memory_order_relaxed);
    }
    /// Whether it was asked for so long ago, in seconds.
    [[nodiscard]] static bool is_older_than(double seconds) noexcept {
        return signal() != 0 && now() - all().asked.load(std::memory_order_relaxed) > seconds;
    }
    /// The program has come to its end: a request to end changes nothing any more.
    static void ends() noexcept {
        all().stopping_until.store(std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
    }
    [[nodiscard]] static bool is_stopping() noexcept {
        return now() < all().stopping_until.load(std::memory_order_relaxed);
    }
    /// A step that should have ended since the request has not, in twice the time of the longest one and 0.4 s.
    [[nodiscard]] static bool is_late() noexcept {
        const state& of = all();
        const double asked = of.asked.load(std::memory_order_relaxed),
                     began = of.step_began.load(std::memory_order_relaxed);
        if (began == 0 || is_stopping()) return false;
        return now() - (asked > began ? asked : began) > 0.4 + 2 * of.longest_step.load(std::memory_order_relaxed);
    }

private:
    struct state {
        std::atomic<int> listeners{0}, number{0};
        std::atomic<double> stopping_until{0}, asked{0}, step_began{0}, longest_step{0};  // step_began 0: none is made
    };
    static_assert(std::atomic<double>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

    [[nodiscard]] static state& all() noexcept {
        static constinit state one;
        return one;
    }
    /// In seconds, of the steady clock: that one is not made for handlers.
    [[nodiscard]] static double now() noexcept {
        timespec time{};
        ::clock_gettime(CLOCK_MONOTONIC, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string name_of_signal(int number) {
    return number == SIGTERM   ? "SIGTERM"
           : number == SIGINT  ? "SIGINT (Ctrl-C)"
           : number == SIGUSR1 ? "SIGUSR1"
                               : text("signal ", number);
}

#endif

}  // namespace lockstep::core

namespace lockstep {
using core::interrupted;
}  // namespace lockstep
