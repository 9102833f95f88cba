// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// When compression is decided on anew, and the times of steps in between.
// Tested by tests/unit/sync/adaptive_control.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/core/sort.hpp"

namespace lockstep::sync {

/// A function of the number of the step and of what it is told, which is the same on all ranks; but for times of steps,
/// which are those of this rank.
class adaptive_control {
public:
    /// Before a step. trial: candidates are tried in it. decision: in the step before they were. verification: another
    /// choice was made some steps ago. look: ranks compare what steps take with what they took after the last decision.
    enum class task : std::uint8_t { none, trial, decision, verification, look };

    explicit adaptive_control(std::uint64_t period) : period_{period} { window_.reserve(longest_window); }

    /// The run begins, or goes on, with this step.
    void begin_run(std::uint64_t step) {
        origin_ = step;
        next_trial_ = step + early[0];
        tried_ = verified_ = next_look_ = none;
        window_.clear();
        is_counted_ = false;
    }
    /// Called once before each step.
    [[nodiscard]] task at(std::uint64_t step) noexcept {
        task out = task::none;
        if (step == verified_) {
            out = task::verification;
            verified_ = none;
        } else if (tried_ != none && step == tried_ + 1) {
            out = task::decision;
        } else if (step >= next_trial_ && verified_ == none) {
            out = task::trial;
            tried_ = step;
            next_trial_ = next_look_ = none;
        } else if (step >= next_look_ && verified_ == none) {
            out = task::look;
            next_look_ = step + look_every;
        }
        // Steps in which something else is done say nothing.
        is_counted_ = out == task::none && step != origin_;
        return out;
    }
    /// The step of the last call of at() has taken so long.
    void took(double seconds) {
        if (!is_counted_) return;
        if (window_.size() == longest_window) window_.erase(window_.begin());
        window_.push_back(seconds);
    }
    /// Seconds of a step: the median since the last decision, of 64 steps at most. Of few steps the least one: the
    /// first ones of a run are slow, and another choice would look fast beside them. Infinite where there are none.
    [[nodiscard]] double step_seconds() const {
        if (window_.empty()) return std::numeric_limits<double>::infinity();
        std::vector<double> sorted = window_;
        core::sort(sorted, [](double a, double b) { return a < b; });
        return sorted[is_short() ? 0 : sorted.size() / 2];
    }
    /// The median of the last steps, for a look. Infinite where there are too few.
    [[nodiscard]] double recent_seconds() const {
        if (std::ssize(window_) < recent) return std::numeric_limits<double>::infinity();
        std::vector<double> sorted{window_.end() - recent, window_.end()};
        core::sort(sorted, [](double a, double b) { return a < b; });
        return sorted[recent / 2];
    }
    /// A look before this step has found that steps take `seconds`, on the slowest rank. Links, or the machine, have
    /// changed where that is half as much again as after the last decision, or two thirds: then the next step is a
    /// trial, and the answer is true.
    [[nodiscard]] bool looked(std::uint64_t step, double seconds) noexcept {
        if (!std::isfinite(seconds) || !(seconds > 0)) return false;
        if (reference_ <= 0) reference_ = seconds;
        if (seconds < most_change * reference_ && reference_ < most_change * seconds) return false;
        if (step < earliest_ || next_trial_ <= step + 1) return false;
        next_trial_ = step + 1;
        return true;
    }
    /// What steps took after the last decision; 0: no look has been taken yet.
    [[nodiscard]] double reference() const noexcept { return reference_; }
    /// Whether they are few.
    [[nodiscard]] bool is_short() const noexcept { return window_.size() < 5; }

    /// After a decision before this step that has cost so many seconds, where a step takes `step_seconds`: by the
    /// period, but so late that trials and decisions take a hundredth of the run; a twentieth where a look asks for
    /// them. Two early ones are free.
    void decided(std::uint64_t step, bool has_changed, double cost, double step_seconds) {
        window_.clear();
        const std::uint64_t done = step - origin_;
        next_trial_ = period_ < none - step ? step + period_ : none;  // a period beyond all steps: never again
        const double steps = step_seconds > 0 ? verified_seconds / step_seconds : 0;
        verified_after_ =
            std::clamp(static_cast<std::uint64_t>(std::min(steps, 1e9)), least_verified, most_verified) + 1;
        for (const std::uint64_t one : early)
            if (one > done) {
                next_trial_ = std::min(next_trial_, origin_ + one);
                break;
            }
        if (done > early[1] && cost > 0 && step_seconds > 0)
            next_trial_ =
                std::max(next_trial_, step + static_cast<std::uint64_t>(std::min(100 * cost / step_seconds, 1e9)));
        earliest_ = cost > 0 && step_seconds > 0
                        ? step + static_cast<std::uint64_t>(std::min(20 * cost / step_seconds, 1e9))
                        : step;
        look_from(step);
        if (has_changed) verified_ = step + verified_after_;
    }
    /// After a verification before this step, which may have changed something, perhaps to something that has to be
    /// verified again. The next decision knows some steps of what there is then.
    void verified(std::uint64_t step, bool has_changed, bool again = false) {
        if (has_changed) {
            window_.clear();
            look_from(step);
        }
        next_trial_ = std::max(next_trial_, step + (has_changed ? verified_after_ : 1));
        if (again) verified_ = step + verified_after_;
    }

private:
    void look_from(std::uint64_t step) noexcept {
        next_look_ = step + look_every;
        reference_ = 0;
    }

    static constexpr std::array<std::uint64_t, 4> early{3, 12, 50, 200};
    static constexpr std::uint64_t look_every = 64;
    static constexpr std::ptrdiff_t recent = 17;
    static constexpr double most_change = 1.5;
    /// A change is seen by ten steps, and by more where they are short.
    static constexpr double verified_seconds = 0.03;
    static constexpr std::uint64_t least_verified = 10, most_verified = 30;
    static constexpr std::size_t longest_window = 64;
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    std::uint64_t period_;
    std::uint64_t origin_ = 0;
    std::uint64_t next_trial_ = none;
    std::uint64_t tried_ = none;
    std::uint64_t verified_ = none;  // when a change is looked at
    std::uint64_t verified_after_ = least_verified + 1;
    std::uint64_t next_look_ = none;
    std::uint64_t earliest_ = 0;  // trial that a look may ask for
    double reference_ = 0;        // seconds of a step after the last decision; 0: not known
    std::vector<double> window_;
    bool is_counted_ = false;
};

}  // namespace lockstep::sync
