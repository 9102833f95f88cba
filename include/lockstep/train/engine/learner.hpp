// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A rank as a learner of a parameter server, or a part of one: rounds in which it takes minibatches, pushes gradients
// and makes updates of its strip, while others do the same.
// Tested by tests/equivalence/parameter_server.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/progress_thread.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/stop_request.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/sync/push_pull.hpp"
#include "lockstep/tensor/state.hpp"
#include "lockstep/train/engine/engine.hpp"

namespace lockstep::train {

/// Beside the trainer of all ranks there is one of the ranks of this learner, which computes gradients over whole
/// minibatches, and one of this rank alone - the same where the learner has one rank - with slots for all numbers, of
/// which those of the own strip are used. After a round the trainer of all ranks has the weights and slots, as after so
/// many steps of its own. Memory: that of both, and of push_pull. Collective but for next() within a round.
template <class Plan>
class learner {
    using core_type = engine<Plan>;
    using T = typename core_type::T;
    using network = typename core_type::network;
    using clock = std::chrono::steady_clock;
    static constexpr std::size_t n = network::parameters_here, slots = core_type::types::optimizer::slot_count;

public:
    [[gnu::cold]] explicit learner(core_type& of)
        : core_{of},
          wires_{of.ranks, n, of.plan.sync.ranks_per_learner},
          ranks_{of.plan.sync.ranks_per_learner > 1
                     ? of.ranks.split(wires_.learner_of(of.ranks.rank()), of.ranks.rank()).named("a learner")
                     : comm::group{}},
          mine_{plan_of(of.plan), ranks_,
                comm::watched_call{ranks_.aborts(), "learner", std::source_location::current()}},
          slots_(slots * n) {
        if (ranks_.size() > 1) {
            Plan of_server = plan_of(of.plan);
            of_server.batch = core_.grid.lanes;  // it computes none
            const comm::group single;
            serves_ = std::make_unique<core_type>(
                of_server, single, comm::watched_call{single.aborts(), "server", std::source_location::current()});
        }
        const bool has_thread = core_.plan.progress_thread && core_.ranks.size() > 1;
        mine_.strategy.learns_for(ranks_.size() > 1 ? std::span<T>{} : wires_.gradient(), this, [](void* self) {
            auto& me = *static_cast<learner*>(self);
            if (me.thread_ == nullptr || !me.thread_->is_lent()) me.serve();
        });
        if (has_thread)
            thread_ = std::make_unique<comm::progress_thread>(
                [](void* self) {
                    auto& me = *static_cast<learner*>(self);
                    const std::uint64_t before = me.wires_.received();
                    me.serve();
                    return me.wires_.received() != before ? comm::progress_thread::outcome::moved
                                                          : comm::progress_thread::outcome::nothing_came;
                },
                this);
    }
    learner(const learner&) = delete;
    learner& operator=(const learner&) = delete;
    ~learner() = default;

    /// Whether all updates of the last round have been told.
    [[nodiscard]] bool is_idle() const noexcept { return told_ == updates_.size(); }
    /// When the round began.
    [[nodiscard]] clock::time_point began() const noexcept { return began_; }
    /// Seconds since then of the update that was told last.
    [[nodiscard]] double seconds() const noexcept { return updates_[told_ - 1].seconds; }

    /// One more update of the run: the next of the round, or the first of a new one of at most `count` steps, which
    /// begins at the trainer's place in an epoch of this set. What the trainer counts is counted here.
    template <class Dataset>
    [[nodiscard]] report::step_event next(const Dataset& set, std::uint64_t count,
                                          core::stop_request::listener& listens) {
        if (is_idle()) run_round(set, count, listens);
        return tell();
    }
    /// One more update of the round, which is_idle() has not.
    [[nodiscard]] report::step_event tell() noexcept {
        const sync::server_event& one = updates_[told_++];
        core_.totals.steps = one.version + 1;
        core_.totals.samples += one.gradient.samples;
        ++core_.totals.timed_steps;
        core_.totals.timed_samples += one.gradient.samples;
        report::step_event out{.step = core_.totals.steps,
                               .epoch = core_.epoch + 1,
                               .samples = one.gradient.samples,
                               .loss = one.gradient.loss,
                               .rate = rates_[told_ - 1]};
        if (is_idle()) out.stop_signal = signal_, out.time_is_over = time_is_over_;
        return out;
    }

private:
    template <class Dataset>
    void run_round(const Dataset& set, std::uint64_t count, core::stop_request::listener& listens) {
        core_.strategy.complete();
        std::ranges::copy(core_.weights(), server().weights().begin());
        gather_slots();
        began_ = clock::now();
        first_ = core_.totals.steps;
        rates_.clear();  // a schedule may have a state, and updates a thread of their own
        for (std::uint64_t step = first_; step < first_ + count; ++step)
            rates_.push_back(static_cast<double>(core_.plan.schedule(step)));
        const std::size_t sent = wires_.bytes_sent();
        wires_.begin(server().weights(), first_, count, core_.plan.sync.bound, core_.limit.seconds_left(began_));
        const auto serving = [this](auto... what) { update(what...); };
        double waited = 0;
        for (;;) {
            const auto since = clock::now();
            const bool has_task = wires_.wait_for_task(serving);
            waited += report::seconds_since(since);
            if (!has_task) break;
            compute(set, listens);
        }
        take_over(waited);
        core_.totals.bytes_sent += wires_.bytes_sent() - sent + std::exchange(mine_.totals.bytes_sent, 0);
    }

    [[nodiscard]] core_type& server() noexcept { return serves_ ? *serves_ : mine_; }
    /// The thread is that of this object.
    [[nodiscard]] static Plan plan_of(const Plan& of) {
        Plan out = of;
        out.progress_thread = false;
        return out;
    }

    /// The thread serves as long as it lives.
    class lent_turn {
    public:
        explicit lent_turn(comm::progress_thread* to) : to_{to} {
            if (to_ != nullptr) to_->lend();
        }
        lent_turn(const lent_turn&) = delete;
        lent_turn& operator=(const lent_turn&) = delete;
        ~lent_turn() {
            if (to_ != nullptr) to_->pause();
        }
        /// Throws what the thread has thrown.
        void end() {
            if (to_ != nullptr) to_->take();
        }

    private:
        comm::progress_thread* to_;
    };

    /// The gradient of the minibatch that this learner has taken.
    template <class Dataset>
    void compute(const Dataset& set, core::stop_request::listener& listens) {
        const auto begin = clock::now();
        listens.step_begins(begin);
        const sync::sent_gradient task = wires_.task();
        std::ranges::copy(wires_.weights(), mine_.weights().begin());
        lent_turn serving{thread_.get()};
        auto reading = clock::now();
        const std::size_t place = core_.position + (task.minibatch - first_) * core_.plan.batch,
                          size = std::min(core_.plan.batch, core_.order.size() - place);
        mine_.totals.steps = task.minibatch;
        mine_.epoch = core_.epoch;
        mine_.strategy.begin(task.minibatch);
        mine_.rows.whole(size, core_type::least_rows);
        const parallel::block own = mine_.rows_to_read(size);
        const auto rows = mine_.samples.template read<Dataset>(
            set, std::span{core_.order}.subspan(place + own.first, own.size()), {core_.plan.seed, core_.epoch}, false);
        mine_.totals.seconds.data += report::lap(reading);
        // Ranks of a learner send messages in its step, and MPI is called by one thread at a time.
        if (ranks_.size() > 1) serving.end();
        const report::step_event made = mine_.run_step(rows.x, rows.y);
        serving.end();
        if (ranks_.size() > 1 && wires_.speaks()) std::ranges::copy(mine_.weights(), wires_.gradient().begin());
        const auto end = clock::now();
        listens.step_ends(end);
        wires_.push({.minibatch = task.minibatch,
                     .version = task.version,
                     .samples = made.samples,
                     .loss = made.loss,
                     .seconds = std::chrono::duration<double>(end - begin).count(),
                     .signal = made.stop_signal});
    }

    void serve() {
        core_.ranks.aborts().glance();
        wires_.serve([this](auto... what) { update(what...); });
    }
    void update(std::span<T> strip, std::span<const T> gradient, std::uint64_t step) {
        const double rate = rates_[step - first_];
        if (!(std::isfinite(rate) && rate >= 0))
            core::fail(core::text("the learning rate is ", rate, " in step ", step + 1),
                       "use a schedule of finite numbers, 0 or more");
        if (!server().strategy.update_strip(strip, wires_.strip().first, gradient, rate, step))
            core::fail(core::text("a weight, a gradient or the state of the optimizer became infinite or NaN in step ",
                                  step + 1, ", whose loss was finite"),
                       "use a lower learning rate or a warm-up, or scale the data");
    }

    /// After a round: weights and slots go from the strips to the trainer of all ranks.
    void take_over(double waited) {
        updates_.clear();
        told_ = 0;
        for (const sync::server_event& one : wires_.events()) {
            if (one.what == sync::server_event::kind::update) updates_.push_back(one);
            if (one.what == sync::server_event::kind::end) signal_ = static_cast<int>(one.gradient.signal);
        }
        // Also of ranks that had no minibatch. The clock is that of rank 0.
        const auto ends =
            core_.ranks.gather_all(std::array{core::stop_request::signal(), wires_.time_is_over() ? 1 : 0});
        for (const auto& one : ends) signal_ = std::max(signal_, one[0]);
        time_is_over_ = ends.front()[1] != 0;
        const auto join = [&](std::span<T> all) {
            if (core_.ranks.size() > 1)
                comm::run(core_.ranks, collectives::all_gather(core_.ranks.rank(), wires_.strips()), all);
        };
        const std::span<T> weights = server().weights();
        std::ranges::copy(wires_.served(), weights.subspan(wires_.strip().first).begin());
        join(weights);
        copy_slots(server().strategy,
                   [](std::span<T> part, std::span<T> all) { std::ranges::copy(part, all.begin()); });
        for (std::size_t slot = 0; slot < slots; ++slot) join(std::span{slots_}.subspan(slot * n, n));

        core_.ranks.end_together();
        core_.change.begin();
        std::ranges::copy(weights, core_.weights().begin());
        copy_slots(core_.strategy, put_part);
        for (const sync::server_event& one : updates_)
            core_.strategy.add_arrival({.learner = one.learner,
                                        .version = one.gradient.version,
                                        .time = one.seconds,
                                        .minibatch = one.gradient.minibatch},
                                       one.version);
        core_.ranks.end_together();
        core_.change.end(first_ + updates_.size());
        core_.ranks.aborts().passed();

        const report::seconds_spent spent = mine_.spent_since();
        auto& sum = core_.totals.seconds;
        sum.data += spent.data;
        sum.forward += spent.forward;
        sum.backward += spent.backward;
        sum.update += spent.update;
        sum.communication_hidden += spent.communication_hidden;
        sum.communication_exposed += spent.communication_exposed + waited;
    }

    static void put_part(std::span<T> part, std::span<const T> all) {
        std::copy_n(all.begin(), part.size(), part.begin());
    }
    /// f(numbers of a strategy, all of that slot from there on) for each run of its slots on this rank.
    template <class Strategy, class F>
    void copy_slots(Strategy& strategy, const F& f) {
        strategy.visit_state(each_slot([&](const tensor::state_part<T>& part) {
            f(part.numbers, std::span{slots_}.subspan(part.slot * n + offset_of(part.tensor) + part.first));
        }));
    }
    /// Those of the trainer of all ranks, which have strips of their own, go to that of this rank.
    void gather_slots() {
        if constexpr (slots > 0) {
            struct piece {
                std::uint64_t at, count;
            };
            std::vector<piece> pieces;
            std::vector<T> numbers;
            core_.strategy.visit_state(each_slot([&](const tensor::state_part<T>& part) {
                if (!part.speaks) return;
                pieces.push_back({part.slot * n + offset_of(part.tensor) + part.first, part.numbers.size()});
                numbers.insert(numbers.end(), part.numbers.begin(), part.numbers.end());
            }));
            const auto all_pieces = gathered(std::span<const piece>{pieces});
            const auto all_numbers = gathered(std::span<const T>{numbers});
            std::size_t at = 0;
            for (const piece& one : all_pieces) {
                std::copy_n(all_numbers.begin() + static_cast<std::ptrdiff_t>(at), one.count,
                            slots_.begin() + static_cast<std::ptrdiff_t>(one.at));
                at += one.count;
            }
            copy_slots(server().strategy, put_part);
        }
    }
    /// What each rank has, one after the other.
    template <class U>
    [[nodiscard]] comm::buffer<U> gathered(std::span<const U> own) const {
        std::vector<parallel::block> strips;
        std::size_t all = 0;
        for (const std::size_t count : core_.ranks.gather_all(own.size())) {
            strips.push_back({all, all + count});
            all += count;
        }
        comm::buffer<U> out(all);
        std::ranges::copy(own, out.begin() + static_cast<std::ptrdiff_t>(strips[core_.ranks.rank()].first));
        if (core_.ranks.size() > 1) comm::run(core_.ranks, collectives::all_gather(core_.ranks.rank(), strips), out);
        return out;
    }
    /// Where a tensor begins among all parameters.
    [[nodiscard]] static std::size_t offset_of(std::size_t tensor) noexcept {
        for (std::size_t layer = 0; layer < network::size; ++layer) {
            std::size_t at = network::offset(layer);
            for (const auto& one : network::facts[layer].tensors) {
                if (tensor == 0) return at;
                --tensor;
                at += one.size();
            }
        }
        return n;
    }
    /// A visitor of slots alone.
    template <class F>
    struct slot_visitor {
        F f;
        void operator()(const tensor::state_part<T>& part) const {
            if (part.role == "optimizer") f(part);
        }
        void operator()(const tensor::state_part<std::uint64_t>&) const noexcept {}
    };
    /// By a function: clang 16 cannot find the types of a member template.
    template <class F>
    [[nodiscard]] static slot_visitor<F> each_slot(const F& f) {
        return {f};
    }

    core_type& core_;
    sync::push_pull<T> wires_;
    comm::group ranks_;  // of this learner
    core_type mine_;
    std::unique_ptr<core_type> serves_;  // where mine_ is of several ranks
    std::vector<T> slots_;
    std::uint64_t first_ = 0;                  // step of the round,
    std::vector<double> rates_;                // rates of its steps,
    std::vector<sync::server_event> updates_;  // and what they were
    std::size_t told_ = 0;                     // of these
    clock::time_point began_{};
    int signal_ = 0;
    bool time_is_over_ = false;
    std::unique_ptr<comm::progress_thread> thread_;  // serves while layers are computed; last: it uses the others
};

/// That of a trainer, made by its first round. Collective then.
template <class Plan>
[[nodiscard]] learner<Plan>& learner_of(engine<Plan>& core) {
    std::shared_ptr<void>& kept = core.strategy.learner();
    if (kept == nullptr) kept = std::make_shared<learner<Plan>>(core);
    return *static_cast<learner<Plan>*>(kept.get());
}

}  // namespace lockstep::train
