// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// When a time is over: rank 0 looks at its clock in each step and tells the others with its losses.
// Tested by tests/training/control.cpp.

#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>

namespace lockstep::train {

/// Of one trainer. On rank 0, which decides for all.
class time_limit {
public:
    using clock = std::chrono::steady_clock;

    /// As long as it lives, steps are to end within so many seconds after `from`.
    class use {
    public:
        use(time_limit& of, clock::time_point from, double seconds) noexcept : of_{of} {
            of.end_ = seconds_at(from) + seconds;
            of.ended_ = of.gap_ = 0;
            of.last_gap_ = 0;
        }
        use(const use&) = delete;
        use& operator=(const use&) = delete;
        ~use() { of_.end_ = none; }

    private:
        time_limit& of_;
    };

    [[nodiscard]] bool is_set() const noexcept { return end_ != none; }
    void step_begins(clock::time_point now) noexcept {
        began_ = seconds_at(now);
        if (ended_ == 0) return;
        const double gap = began_ - ended_;
        gap_ = std::fmin(gap, last_gap_);
        last_gap_ = gap;
    }
    void step_ends(clock::time_point now) noexcept {
        ended_ = seconds_at(now);
        typical_ = ended_ - began_;
    }

    /// In a step, once the loss of the last of its walks is known: whether it is the last one, because the next is
    /// expected to end too late. Steps take as long as the one before did; in the first one a forward is a third of a
    /// walk. Between two steps, where observers hear and samples are read, it takes the less of the last two times:
    /// what is done now and then, such as an evaluation, is not expected after each step.
    [[nodiscard]] bool is_over(clock::time_point now, std::size_t walks) const noexcept {
        const auto count = static_cast<double>(walks);
        const double step = typical_ > 0 ? typical_ : (seconds_at(now) - began_) * 3 * count / (3 * count - 2);
        return std::fmax(seconds_at(now), began_ + step) + gap_ + step > end_;
    }
    /// Until its end; infinite where none is set.
    [[nodiscard]] double seconds_left(clock::time_point now) const noexcept { return end_ - seconds_at(now); }
    /// Before the first step. What was expected of a single slow step must not forbid all further ones.
    [[nodiscard]] bool allows_first(clock::time_point now) noexcept {
        const double left = end_ - seconds_at(now);
        const bool out = left > 0 && typical_ <= left;
        if (!out && left > 0) typical_ /= 2;
        return out;
    }

private:
    static constexpr double none = std::numeric_limits<double>::infinity();

    [[nodiscard]] static double seconds_at(clock::time_point when) noexcept {
        return std::chrono::duration<double>(when.time_since_epoch()).count();
    }

    double end_ = none;   // by the clock, in seconds
    double began_ = 0;    // the step that is being made
    double typical_ = 0;  // how long the last one took; 0: there was none
    double ended_ = 0;    // the last one of this use; 0: there was none
    double gap_ = 0;      // expected from the end of a step to the begin of the next
    double last_gap_ = 0;
};

}  // namespace lockstep::train
