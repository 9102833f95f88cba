// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Synchronous SGD with gradients of the step before: all communication has a whole step to hide behind.
// Tested by tests/equivalence/delayed.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/sync/owner_updates.hpp"

namespace lockstep::sync {

/// The words of `delayed`. Two queues take turns: while one adds the gradients of this step, the sums of the other
/// update the weights.
template <class Types>
class delayed_updates : public owner_updates<Types> {
    using base = owner_updates<Types>;
    using typename base::network;
    using typename base::queue;
    using typename base::stage;
    using typename base::T;

public:
    static constexpr std::size_t gradient_sets = 2;

    template <class Plan>
    [[gnu::cold]] explicit delayed_updates(const setup<Plan>& from)
        : base{from.with_sums_that_wait()}, other_{from.with_sums_that_wait(), this->times_} {
        if (from.plan.progress_thread)
            core::fail(
                "the plan asks for a progress thread with sync::delayed, which hides its communication without one",
                "leave progress_thread out");
        this->queue_.goes_with(other_);
    }

    void bind(const tensor::arena& arena) {
        base::bind(arena);
        other_.bind(arena);
    }
    void begin(std::uint64_t step) {
        base::begin(step);
        fresh_ = step % 2;
    }
    [[nodiscard]] layer_hook weights_needed() noexcept {
        return {this, [](void* of, std::size_t layer) {
                    auto& self = *static_cast<delayed_updates*>(of);
                    // The queue whose turn it is has made the last new weights.
                    self.stale().poll();
                    self.fresh().wait_before(layer);
                }};
    }
    [[nodiscard]] gradient_place<T> gradient_location(std::size_t layer) const noexcept {
        return (fresh_ == 0 ? this->queue_ : other_).gradient_location(layer);
    }
    template <class Others>
    void gradient_ready(std::size_t layer, std::uint64_t step, const Others& others) {
        this->times_.note(report::activity::backward, layer);
        if (this->overlaps_) fresh().ready(layer, step);
        stale().poll();
        fresh().beside_backward(others);
    }
    [[nodiscard]] double reduce_loss(step_sums& losses, std::uint64_t step) {
        if (!this->overlaps_) fresh().start_all(step);
        return this->agree_on_loss(losses, [&] {
            fresh().poll();
            stale().poll();
        });
    }
    /// The first step changes no weight.
    [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
        bool is_finite = true;
        has_updated_ = is_any_pending_;
        if (is_any_pending_)
            is_finite = this->commit_sums(stale(), weights, rate, step, {}, 1);
        else
            stale().completes(step + 1);
        is_any_pending_ = true;
        pending_ = fresh_;
        return is_finite;
    }

    /// Sums that are pending are brought to their end as well: nothing is under way while weights are looked at.
    void complete() {
        for (queue* one : {&this->queue_, &other_}) {
            one->wait_all();
            one->wait_for_sums();
        }
    }
    /// After so many steps the sums of the last one wait for the next: here sums of nothing, to be overwritten.
    [[gnu::cold]] void prepare_state(std::uint64_t steps) {
        complete();
        is_any_pending_ = steps > 0;
        if (!is_any_pending_) return;
        base::begin(steps - 1);
        pending_ = fresh_ = (steps - 1) % 2;
        for (std::size_t bucket = 0; bucket < fresh().size(); ++bucket)
            std::ranges::fill((*this->arena_)[fresh()[bucket].gradient], T{0});
        fresh().start_all(steps - 1);
        complete();
    }
    /// What visit_state() shows after prepare_state(steps), to be laid out: weights stand for a pending gradient.
    template <class Visitor>
    [[gnu::cold]] void visit_state_after(std::uint64_t steps, std::span<T> weights, Visitor&& visit) {
        if (steps > 0) base::visit_owned(visit, "pending gradient", 0, weights);
        visit_others(visit);
    }
    /// Alone, where the run may go on, the sums of the last complete step stay pending.
    [[gnu::cold]] void abandon() noexcept {
        fresh_ = 1 - pending_;
        bool stays = is_any_pending_ && this->all_.size() == 1;
        try {
            if (stays) stale().wait_for_sums();
        } catch (...) {  // nothing but the first failure counts
        }
        bool is_finite = true;
        for (std::size_t bucket = 0; bucket < stale().size(); ++bucket) {
            stays = stays && stale()[bucket].state == stage::summed;
            if (stays) is_finite = is_finite && sums_are_finite(stale()[bucket].reducer);
        }
        // They would spoil weights that are loaded now.
        for (std::size_t bucket = 0; stays && !is_finite && bucket < stale().size(); ++bucket)
            std::ranges::fill(stale()[bucket].reducer.sums(), T{0});
        fresh().abandon(stays);
        if (!stays) stale().abandon();
        is_any_pending_ = stays;
        fresh_ = pending_;
    }
    [[gnu::cold]] void record(report::recorder* to) {
        base::record(to);
        if (to != nullptr) base::add_buckets(*to, other_);
    }

    /// After complete().
    template <class Visitor>
    void visit_state(Visitor&& visit) {
        // First: the end of a sum may change what its reducer keeps.
        if (is_any_pending_)
            base::visit_owned(visit, "pending gradient", 0, [&](std::size_t bucket) {
                auto& reducer = fresh()[bucket].reducer;
                reducer.finish();
                return reducer.sums();
            });
        visit_others(visit);
    }

    /// Of the sums that have updated weights in the last step; those of this one are under way. In the first step of a
    /// run nothing is updated: what has been sent.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        const queue& of = (fresh_ == 0) == has_updated_ ? other_ : this->queue_;
        return of.bytes_per_step() + this->norms_.bytes_per_step();
    }
    [[nodiscard]] std::size_t gradient_numbers() const noexcept {
        return base::gradient_numbers() + other_.gradient_numbers();
    }
    [[nodiscard]] std::size_t message_bytes() const noexcept { return base::message_bytes() + other_.message_bytes(); }

private:
    /// All but the gradient that is pending.
    template <class Visitor>
    void visit_others(Visitor&& visit) {
        base::visit_state(visit);
        for (std::size_t bucket = 0; bucket < other_.size(); ++bucket) other_[bucket].reducer.visit_state(visit, 1);
    }
    [[nodiscard, gnu::cold]] static bool sums_are_finite(auto& reducer) {
        reducer.finish();
        const std::span<const T> sums = reducer.sums();
        return kernels::first_non_finite(sums) == sums.size();
    }
    [[nodiscard]] queue& fresh() noexcept { return fresh_ == 0 ? this->queue_ : other_; }
    [[nodiscard]] queue& stale() noexcept { return fresh_ == 0 ? other_ : this->queue_; }

    queue other_;
    std::size_t fresh_ = 0;    // which of the two takes the gradients of this step
    std::size_t pending_ = 0;  // which has the sums of the last complete one
    bool is_any_pending_ = false;
    bool has_updated_ = false;  // in the last step
};

/// w(t+1) = w(t) - rate(t) g(t-1): one step stale, and with the same bits on any number of ranks. The first step
/// applies nothing; the last gradient stays pending, also between two fit() and after load_weights(). A compressor
/// keeps a state for even and one for odd steps. Losses and statistics are those of the step. Staleness of one slows
/// convergence at high rates with momentum: lower the rate or warm up (Agarwal and Duchi, NIPS 2011; Pipe-SGD, Li et
/// al., NeurIPS 2018). Communication has a whole step to hide behind in fit() and step_for(), where no observer looks
/// at the weights after each step; a step() ends with its own sums, as nothing is under way between two calls. Memory:
/// a second set of gradients and of the reducers. No progress thread.
struct delayed {
    static constexpr std::string_view name = "delayed";
    static constexpr bool takes_factors = true;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class Types>
    using strategy = delayed_updates<Types>;
};

static_assert(StrategyChoice<delayed>);

}  // namespace lockstep::sync
