// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What observers learn of a step's communication: how much of it is hidden, why ranks wait, and a recording where
// somebody listens.
// Tested by tests/unit/report/overlap_clock.cpp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/report/events.hpp"
#include "lockstep/report/overlap_clock.hpp"
#include "lockstep/report/recorder.hpp"

namespace lockstep::sync {

/// Buckets are numbered in the order of add_bucket(). All calls come from the thread that has the turn (see
/// comm/progress_thread.hpp).
class step_times {
public:
    using clock = report::overlap_clock::clock;
    using time = report::overlap_clock::time;
    using direction = report::overlap_clock::direction;

    [[gnu::cold]] explicit step_times(bool overlaps) : overlaps_{overlaps} {}

    [[gnu::cold]] void add_bucket(std::size_t numbers) {
        clock_.add_bucket(numbers);
        ++buckets_;
    }
    [[nodiscard]] std::size_t buckets() const noexcept { return buckets_; }
    /// Twice as many arrivals as buckets fit, without an allocation.
    [[gnu::cold]] void expect_arrivals() { arrivals_.reserve(2 * buckets_); }
    [[gnu::cold]] void record(report::recorder* to) noexcept { recorder_ = to; }

    void begin_step(std::uint64_t step) {
        const time now = clock::now();
        if (begun_ != time{}) took_ = now - begun_;
        begun_ = now;
        if (recorder_ != nullptr) recorder_->begin_step(step);
    }
    /// The rank has done this since the last note.
    void note(report::activity what, std::size_t number = 0) {
        if (recorder_ != nullptr) recorder_->lap(what, number);
    }

    void started(std::size_t bucket, direction where) { clock_.started(bucket, where, clock::now()); }
    /// `on_thread`: seen by the progress thread, whose arrivals the owner of the recorder takes over with collect().
    void arrived(std::size_t bucket, direction where, bool on_thread) {
        const time now = clock::now();
        clock_.arrived(bucket, where, now);
        if (recorder_ == nullptr) return;
        const auto what = where == direction::sum ? report::activity::sum : report::activity::share;
        const arrival one{what, bucket, clock_.begin_of(bucket, where), now};
        on_thread ? arrivals_.push_back(one) : recorder_->flight(what, bucket, one.begin, now);
    }
    void collect() {
        for (const arrival& one : arrivals_)
            if (recorder_ != nullptr) recorder_->flight(one.what, one.bucket, one.begin, one.end);
        arrivals_.clear();
    }

    /// Seconds since all ranks agreed the last time, or 0.
    [[nodiscard]] double begin_agreeing() noexcept {
        waiting_since_ = clock::now();
        return agreed_ == time{} ? 0 : report::overlap_clock::seconds(agreed_, waiting_since_);
    }
    /// `slow`: how much longer than this rank the slowest has worked.
    void agreed(double slow) {
        agreed_ = clock::now();
        waited_ = clock_.waited(waiting_since_, agreed_);
        slow_ = slow;
        note(report::activity::waiting, buckets_);
    }

    /// All sums are waited for before the first update; what they are read for counts as updates.
    void begin_norms() noexcept { idle_since_ = clock::now(); }
    void begin_updates() noexcept {
        clock_.begin_round(direction::share);
        idle_since_ = clock::now();
    }
    void begin_update() {
        updating_since_ = clock::now();
        waited_ += clock_.waited(idle_since_, updating_since_);
        note(report::activity::waiting, buckets_);
    }
    void end_update(std::size_t bucket) {
        idle_since_ = clock::now();
        update_seconds_ += report::overlap_clock::seconds(updating_since_, idle_since_);
        note(report::activity::update, bucket);
    }
    void end_updates() {
        worked_ = clock::now() - begun_;
        if (overlaps_) clock_.explain_sums(waiting_since_, waited_, slow_);
        clock_.begin_round(direction::sum);
    }
    /// Waited before a layer for the weights of a bucket. `first`: nothing of this step could be computed before.
    void waited_for_weights(std::size_t bucket, time begin, bool first) {
        const time end = clock::now();
        clock_.waited(begin, end);
        clock_.explain_share(bucket, begin, end, first);
        note(report::activity::waiting, bucket);
    }
    void waited_at_the_end(time begin) {
        const time end = clock::now();
        worked_ += end - begin;
        const double wait = clock_.waited(begin, end);
        if (overlaps_) clock_.explain_end(wait);
        note(report::activity::waiting, buckets_);
    }
    /// The rank has waited for something else, while buckets may be under way: that hides none of their time.
    void waited_beside(time begin) noexcept { clock_.waited(begin, clock::now()); }
    void give_up() noexcept { clock_.give_up(clock::now()); }

    [[nodiscard]] clock::duration step_took() const noexcept { return took_; }
    /// The same without what the program does between two steps.
    [[nodiscard]] clock::duration step_worked() const noexcept { return worked_; }
    /// Of gradients, weights and losses: while this rank did nothing else.
    [[nodiscard]] double exposed_seconds() const noexcept { return clock_.exposed(); }
    /// The times of the rest of a step, with those of this one.
    [[nodiscard]] report::seconds_spent added_to(report::seconds_spent out) const noexcept {
        out.update += update_seconds_;
        out.communication_hidden += clock_.hidden();
        out.communication_exposed += clock_.exposed();
        out.because = clock_.because();
        out.because.other = out.communication_exposed - out.because.sum();
        return out;
    }

private:
    /// A bucket that has arrived while the owner of the recorder computed.
    struct arrival {
        report::activity what;
        std::size_t bucket;
        time begin, end;
    };

    bool overlaps_;
    std::size_t buckets_ = 0;
    report::overlap_clock clock_;
    report::recorder* recorder_ = nullptr;
    std::vector<arrival> arrivals_;
    time begun_{};  // this step
    clock::duration took_{}, worked_{};
    time waiting_since_{};  // after backward
    time agreed_{};         // all ranks, the last time
    time idle_since_{};
    time updating_since_{};
    double waited_ = 0;
    double slow_ = 0;
    double update_seconds_ = 0;
};

}  // namespace lockstep::sync
