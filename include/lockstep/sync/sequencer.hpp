// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The order of what happens at a parameter server of several ranks: who begins a gradient, and whose comes next.
// Tested by tests/unit/sync/sequencer.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/core/compiled.hpp"

namespace lockstep::sync {

/// What a learner says of a gradient that it has sent.
struct sent_gradient {
    std::uint64_t minibatch = 0;
    std::uint64_t version = 0;  ///< of which weights
    std::uint64_t samples = 0;
    double loss = 0;          ///< their mean
    double seconds = 0;       ///< that it took
    std::int64_t signal = 0;  ///< that asks for the end of the run; 0: none
};

/// One thing that happens at the server, in the one order that all ranks follow.
struct server_event {
    enum class kind : std::uint64_t {
        start,   ///< a learner takes a minibatch, and reads the weights after `version` updates
        update,  ///< its gradient becomes update number `version`
        end      ///< of a round: nothing is under way any more
    };
    kind what = kind::end;
    std::uint64_t learner = 0;
    std::uint64_t version = 0;
    double seconds = 0;        ///< since the round began
    sent_gradient gradient{};  ///< of an update; of an end, the signal
};

/// Hands out minibatches and orders gradients, on one rank for all. A learner that has sent a gradient takes the next
/// minibatch at once, unless there is none or the bound of stale-synchronous training forbids it: with a bound of s no
/// learner begins while it has sent more than s more than the slowest in this round. Cost: O(learners) a gradient with
/// a bound, else O(1).
class sequencer {
public:
    /// `learners` ask for minibatches `first` .. `first + count - 1`, which are as many updates.
    [[gnu::cold]] void begin(std::size_t learners, std::uint64_t first, std::uint64_t count,
                             std::optional<std::uint64_t> bound);
    /// After begin(): each learner begins, while there are minibatches.
    void start_all(double seconds);
    /// The gradient of a learner has been sent.
    void sent(std::size_t learner, const sent_gradient& what, double seconds);
    /// No further minibatch is handed out; what is under way still counts.
    void stop() noexcept { next_ = last_; }
    /// All events since begin().
    [[nodiscard]] std::span<const server_event> events() const noexcept { return events_; }

private:
    /// Those that wait, in the order in which they came.
    void start_waiting(double seconds);

    std::uint64_t next_ = 0, last_ = 0;  // minibatches
    std::uint64_t updates_ = 0;          // that have been ordered, of the whole run
    std::optional<std::uint64_t> bound_{};
    std::vector<std::uint64_t> sent_;   // of each learner
    std::vector<std::size_t> waiting_;  // learners
    std::size_t under_way_ = 0;
    std::int64_t signal_ = 0;
    bool is_over_ = false;
    std::vector<server_event> events_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void sequencer::begin(std::size_t learners, std::uint64_t first, std::uint64_t count,
                                        std::optional<std::uint64_t> bound) {
    next_ = updates_ = first;
    last_ = first + count;
    bound_ = bound;
    sent_.assign(learners, 0);
    waiting_.clear();
    for (std::size_t one = 0; one < learners; ++one) waiting_.push_back(one);
    under_way_ = 0;
    signal_ = 0;
    is_over_ = false;
    events_.clear();
}

LOCKSTEP_FUNCTION void sequencer::start_all(double seconds) { start_waiting(seconds); }

LOCKSTEP_FUNCTION void sequencer::sent(std::size_t learner, const sent_gradient& what, double seconds) {
    events_.push_back({server_event::kind::update, learner, updates_++, seconds, what});
    ++sent_[learner];
    --under_way_;
    waiting_.push_back(learner);
    if (what.signal != 0) {
        signal_ = std::max(signal_, what.signal);
        stop();
    }
    start_waiting(seconds);
}

LOCKSTEP_FUNCTION void sequencer::start_waiting(double seconds) {
    const std::uint64_t slowest = bound_ ? std::ranges::min(sent_) : 0;
    const auto rest = std::ranges::remove_if(waiting_, [&](std::size_t learner) {
        if (next_ == last_ || (bound_ && sent_[learner] - slowest > *bound_)) return false;
        events_.push_back(
            {server_event::kind::start, learner, updates_, seconds, {.minibatch = next_++, .version = updates_}});
        ++under_way_;
        return true;
    });
    waiting_.erase(rest.begin(), rest.end());
    if (under_way_ > 0 || is_over_) return;
    is_over_ = true;
    events_.push_back({server_event::kind::end, 0, updates_, seconds, {.signal = signal_}});
}

#endif

}  // namespace lockstep::sync
