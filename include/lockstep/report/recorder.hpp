// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a rank did and had under way, with its times: filled by the trainer while a timeline listens, read by
// report/timeline.hpp.
// Tested by tests/unit/report/timeline.cpp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"

namespace lockstep::report {

/// The first ones are what the rank itself did, one after the other; `sum` and `share` are buckets under way beside it.
enum class activity : std::uint8_t { data, forward, loss, backward, update, polling, waiting, other, sum, share };

struct recorded_event {
    std::int64_t begin = 0;  ///< ns of the steady clock
    std::int64_t end = 0;
    std::uint64_t step = 0;    ///< 1 for the first of the trainer; of a bucket: the one in which it arrived
    std::uint32_t number = 0;  ///< layer or bucket
    activity what = activity::other;
};

/// Parameters that travel together.
struct recorded_bucket {
    std::size_t lowest_layer = 0;
    std::size_t highest_layer = 0;
    std::size_t bytes = 0;  ///< that this rank sends for its sum and its weights together
};

/// Events of at most so many steps. Costs a clock and a store for each event while it is active; a trainer without one
/// asks for a null pointer.
class recorder {
public:
    using clock = std::chrono::steady_clock;

    std::vector<recorded_event> events;
    std::vector<recorded_bucket> buckets;
    std::string_view (*name_of_layer)(std::size_t layer) = nullptr;

    void limit(std::size_t steps) {
        left_ = steps;
        active_ = false;
    }
    /// The next step begins. False if it is not recorded.
    bool begin_step(std::uint64_t step) {
        active_ = left_ > 0;
        left_ -= active_ ? 1 : 0;
        step_ = step;
        last_ = nanoseconds(clock::now());
        return active_;
    }
    /// Since the last lap this rank has done this.
    void lap(activity what, std::size_t number = 0);
    /// A bucket has arrived.
    void flight(activity what, std::size_t bucket, clock::time_point begin, clock::time_point end);

    [[nodiscard]] static std::int64_t nanoseconds(clock::time_point at) noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
    }

private:
    std::size_t left_ = 0;
    bool active_ = false;
    std::uint64_t step_ = 0;
    std::int64_t last_ = 0;
};

#if LOCKSTEP_BODIES

[[gnu::noinline]] LOCKSTEP_FUNCTION void recorder::lap(activity what, std::size_t number) {
    if (!active_) return;
    const std::int64_t now = nanoseconds(clock::now());
    events.push_back({std::exchange(last_, now), now, step_, static_cast<std::uint32_t>(number), what});
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void recorder::flight(activity what, std::size_t bucket, clock::time_point begin,
                                                          clock::time_point end) {
    if (!active_) return;
    events.push_back({nanoseconds(begin), nanoseconds(end), step_, static_cast<std::uint32_t>(bucket), what});
}

#endif

}  // namespace lockstep::report
