// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How long buckets were under way on one rank, how much of that was hidden behind its work, and why the rest was
// exposed.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point begin) noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
/// Seconds since the last call.
[[nodiscard]] inline double lap(std::chrono::steady_clock::time_point& since) noexcept {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(since, now)).count();
}

/// Communication is hidden while at least one bucket is under way and the rank does not wait. Causes of waits are
/// estimates: a bucket alone on the links takes the shortest time that it has ever taken, or that of another one of its
/// size; buckets that go one after the other at this pace show when the last one could have arrived. What came later
/// than that had arrived, but was not polled for.
class overlap_clock {
public:
    using clock = std::chrono::steady_clock;
    using time = clock::time_point;
    enum class direction : std::size_t { sum, share };

    [[gnu::cold]] void add_bucket(std::size_t numbers) {
        flights_.push_back({.numbers = static_cast<double>(numbers)});
    }

    void started(std::size_t bucket, direction where, time now) {
        if (under_way_++ == 0) since_ = now;
        order_[at(where)].push_back(bucket);
        flights_[bucket].begin[at(where)] = now;
    }
    void arrived(std::size_t bucket, direction where, time now) noexcept {
        flight& arriving = flights_[bucket];
        arriving.end[at(where)] = arrived_ = now;
        double& best = arriving.best[at(where)];
        best = std::min(best, seconds(arriving.begin[at(where)], now));
        if (--under_way_ == 0) in_flight_ += seconds(since_, now);
    }
    [[nodiscard]] time begin_of(std::size_t bucket, direction where) const noexcept {
        return flights_[bucket].begin[at(where)];
    }
    /// Buckets of this direction that have started before count no more.
    void begin_round(direction where) noexcept { order_[at(where)].clear(); }
    /// What is under way will not be waited for.
    void give_up(time now) noexcept {
        if (under_way_ > 0) in_flight_ += seconds(since_, now);
        under_way_ = 0;
    }

    /// This rank has waited. Returns how long.
    double waited(time begin, time end) noexcept {
        const double wait = seconds(begin, end);
        exposed_ += wait;
        if (under_way_ > 0)
            exposed_in_flight_ += seconds(std::max(begin, since_), end);
        else
            exposed_in_flight_ += std::clamp(seconds(begin, arrived_), 0.0, wait);
        return wait;
    }

    /// After backward the rank has waited for `wait` seconds from `begin` on until all sums were there, `slow` of them
    /// for a rank that came later.
    void explain_sums(time begin, double wait, double slow) noexcept;
    /// Before a layer the rank has waited for the weights of a bucket. `first`: nothing of this step could be computed
    /// before.
    void explain_share(std::size_t bucket, time begin, time end, bool first) noexcept;
    /// After the last step there is nothing to hide behind.
    void explain_end(double wait) noexcept { because_.last_bucket += wait; }

    [[nodiscard]] double hidden() const noexcept {
        return in_flight_ + (under_way_ > 0 ? seconds(since_, clock::now()) : 0) - exposed_in_flight_;
    }
    [[nodiscard]] double exposed() const noexcept { return exposed_; }
    [[nodiscard]] const exposed_because& because() const noexcept { return because_; }

    [[nodiscard]] static double seconds(time begin, time end) noexcept {
        return std::chrono::duration<double>(end - begin).count();
    }

private:
    struct flight {
        double numbers = 0;
        std::array<time, 2> begin{};
        std::array<time, 2> end{};
        std::array<double, 2> best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    };

    [[nodiscard]] static constexpr std::size_t at(direction where) noexcept { return static_cast<std::size_t>(where); }

    /// Seconds of a bucket that has the links for itself.
    [[nodiscard]] double alone(std::size_t bucket, direction where) const noexcept {
        double latency = std::numeric_limits<double>::infinity(), pace = latency;
        for (const flight& known : flights_) {
            latency = std::min(latency, known.best[at(where)]);
            pace = std::min(pace, known.best[at(where)] / std::max(known.numbers, 1.0));
        }
        return std::min(flights_[bucket].best[at(where)], latency + pace * flights_[bucket].numbers);
    }
    /// When a bucket arrives if those started before it go one after the other.
    [[nodiscard]] time ideal_arrival(std::size_t bucket, direction where) const noexcept {
        time free{};
        for (const std::size_t other : order_[at(where)]) {
            free = std::max(free, flights_[other].begin[at(where)]);
            // One that has not arrived yet in any step says nothing.
            if (const double takes = alone(other, where); takes < 1e9)
                free += std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(takes));
            if (other == bucket) break;
        }
        return free;
    }

    std::vector<flight> flights_;
    std::array<std::vector<std::size_t>, 2> order_;  // of the starts
    std::size_t under_way_ = 0;
    time since_{};
    time arrived_{};
    double in_flight_ = 0;
    double exposed_ = 0;
    double exposed_in_flight_ = 0;
    exposed_because because_;
};

#if LOCKSTEP_BODIES

[[gnu::noinline]] LOCKSTEP_FUNCTION void overlap_clock::explain_sums(time begin, double wait, double slow) noexcept {
    const auto& sums = order_[at(direction::sum)];
    if (sums.empty()) return;
    time last_sum{};
    for (const std::size_t bucket : sums) last_sum = std::max(last_sum, flights_[bucket].end[at(direction::sum)]);
    slow = std::clamp(slow, 0.0, wait);
    const double reach =
        std::clamp(seconds(begin, last_sum) - slow, 0.0, wait - slow);  // after it no sum was waited for
    const double could = std::max(0.0, seconds(begin, ideal_arrival(sums.back(), direction::sum)));
    const double idle = std::clamp(reach - could, 0.0, reach);
    const double last = std::min(reach - idle, alone(sums.back(), direction::sum));
    because_.slow_rank += slow;
    because_.no_progress += idle;
    because_.last_bucket += last;
    because_.large_bucket += reach - idle - last;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void overlap_clock::explain_share(std::size_t bucket, time begin, time end,
                                                                      bool first) noexcept {
    const double wait = seconds(begin, end);
    const double idle = std::clamp(seconds(std::max(ideal_arrival(bucket, direction::share), begin), end), 0.0, wait);
    because_.no_progress += idle;
    (first ? because_.last_bucket : because_.large_bucket) += wait - idle;
}

#endif

}  // namespace lockstep::report
