// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passes over a data set: samples are ordered, dealt, read ahead and trained on, and observers hear of it.
// Tested by tests/equivalence/same_bits.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/report/events.hpp"
#include "lockstep/report/observers.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/train/engine/engine.hpp"
#include "lockstep/train/engine/learner.hpp"
#include "lockstep/train/engine/read_ahead.hpp"

namespace lockstep::train {

/// A run that goes on in the middle of an epoch needs the data set of its beginning. All ranks alike.
template <class Plan>
[[gnu::cold]] void require_restored_set(const engine<Plan>& core, std::size_t n) {
    if (core.restored_set == 0 || core.restored_set == n || core.position == 0) return;
    core::fail(core::text("the run was saved after ", core.position, " of ", core.restored_set,
                          " samples of an epoch, this data set has ", n),
               "go on with the data set that it was begun with");
}

/// Whether no observer of any rank ends the run. Collective.
[[nodiscard]] inline bool all_go_on(const comm::group& ranks, bool mine) {
    bool out = true;
    for (const bool one : ranks.gather_all(mine)) out = out && one;
    return out;
}

/// The signal that asks any rank for the end of the run, where an observer of any rank saves it; 0: none. Collective.
[[nodiscard]] inline int late_signal(const comm::group& ranks, bool saves) {
    int out = 0;
    bool is_saved = false;
    for (const auto& [signal, one] : ranks.gather_all(std::array{core::stop_request::signal(), saves ? 1 : 0})) {
        out = std::max(out, signal);
        is_saved = is_saved || one != 0;
    }
    return is_saved ? out : 0;
}

/// All ranks are to run alike. Collective.
template <class Until>
[[gnu::cold]] void require_same_end(const comm::group& ranks, const Until& until) {
    fit_length mine;
    constexpr std::string_view unit = std::is_same_v<Until, report::seconds>      ? "seconds"
                                      : std::is_same_v<Until, report::steps>      ? "steps"
                                      : std::is_same_v<Until, report::epochs>     ? "epochs"
                                      : std::is_same_v<Until, report::until_step> ? "steps of the whole run"
                                                                                  : "epochs of the whole run";
    std::ranges::copy(unit, mine.unit.begin());
    if constexpr (std::is_same_v<Until, report::seconds>)
        mine.seconds = until.count;
    else
        mine.count = until.count;
    require_same_length(ranks, mine);
}

/// What an evaluation after an epoch would find, before the first step. Collective.
template <class Plan, class Observer>
[[gnu::cold]] void require_validation(const engine<Plan>& core, const Observer& observer) {
    using of = engine<Plan>;
    if constexpr (report::is_validation<std::remove_const_t<Observer>>)
        if constexpr (check_dataset<std::remove_cvref_t<decltype(observer.set)>, typename of::T, typename of::input,
                                    typename of::label, typename of::loss_type>())
            inference<typename of::T, typename of::network, typename of::label, Plan>::require_evaluable(
                core.ranks, observer.set, observer.also);
}

/// Before the first step: what an observer decides by is measured after each epoch.
template <class Trainer, class Plan, class Observer, class... Observers>
[[gnu::cold]] void require_monitored(const engine<Plan>& core, const Observer& observer, const Observers&... all) {
    if constexpr (report::needs_validation<Observer> && requires { std::string_view{observer.monitor}; })
        if (!(report::may_measure<Trainer>(all, observer.monitor) || ...))
            saving::alike(core.ranks, [&] {
                core::fail(core::text("early_stopping looks at '", observer.monitor,
                                      "', which no validate{set} of this fit() measures"),
                           "name the metric there, validate{set, metric}, or look at the loss");
            });
}

/// An observer that decides by the best epoch.
template <class Observer>
inline constexpr bool decides_by_best = requires(const Observer& one) {
    std::string_view{one.monitor};
    one.least;
    one.larger_is_better;
    one.best_epoch;
    one.best_loss;
};

/// A trainer remembers one best epoch: what decides by it looks at the same number in the same way.
template <class Plan, class... Observers>
[[gnu::cold]] void require_one_best(const engine<Plan>& core, const Observers&... all) {
    std::string looks;
    const auto add = [&]<class Observer>(const Observer& one) {
        if constexpr (decides_by_best<Observer>) {
            const std::string mine =
                core::text(one.larger_is_better ? "larger " : "", one.monitor, " with least = ", one.least);
            if (!looks.empty() && looks != mine)
                core::fail(core::text("two early_stopping look at ", looks, " and at ", mine,
                                      ", and a trainer remembers one best epoch"),
                           "name one of them, and end the run by the other number in an on_epoch() of your own");
            looks = mine;
        }
    };
    saving::alike(core.ranks, [&] { (add(all), ...); });
}

/// The same after on_begin(): it has seen the same best epoch, or one would overwrite the weights of another.
template <class Plan, class... Observers>
[[gnu::cold]] void require_same_best(const engine<Plan>& core, const Observers&... all) {
    std::optional<std::pair<std::uint64_t, double>> best;
    const auto add = [&]<class Observer>(const Observer& one) {
        if constexpr (decides_by_best<Observer>) {
            if (best && *best != std::pair{one.best_epoch, one.best_loss})
                core::fail(core::text("two early_stopping of one fit() know of other best epochs, ", best->first,
                                      " and ", one.best_epoch, " (0: none)"),
                           "name both of them in each fit() of the run, or one alone");
            best = {one.best_epoch, one.best_loss};
        }
    };
    saving::alike(core.ranks, [&] { (add(all), ...); });
}

/// After on_begin(), which makes folders: no two checkpoint write to one.
template <class Plan, class... Observers>
[[gnu::cold]] void require_own_folders(const engine<Plan>& core, const Observers&... all) {
    std::vector<std::string> folders;
    const auto add = [&]<class Observer>(const Observer& one) {
        if constexpr (report::owns_folder<Observer>) {
            std::error_code problem;
            for (const std::string& other : folders)
                if (std::filesystem::equivalent(other, one.folder, problem))
                    core::fail(core::text("two checkpoint of one fit() write to ", one.folder),
                               "give each a folder of its own: one would delete what the other keeps");
            folders.push_back(one.folder);
        }
    };
    saving::alike(core.ranks, [&] { (add(all), ...); });
}

/// The place in the data set before a fit(), which takes it back where it fails before its first step.
template <class Plan>
class kept_place {
public:
    explicit kept_place(engine<Plan>& core)
        : core_{&core},
          restored_set_{core.restored_set},
          is_first_fit_{core.is_first_fit},
          epoch_{core.epoch},
          position_{core.position},
          epoch_samples_{core.epoch_samples},
          epoch_loss_{core.epoch_loss} {}
    kept_place(const kept_place&) = delete;
    kept_place& operator=(const kept_place&) = delete;
    ~kept_place() {
        if (core_ == nullptr) return;
        core_->restored_set = restored_set_;
        core_->is_first_fit = is_first_fit_;
        core_->epoch = epoch_;
        core_->position = position_;
        core_->epoch_samples = epoch_samples_;
        core_->epoch_loss = epoch_loss_;
        if (has_order_) core_->order.swap(order_);
    }
    /// Of another set.
    void order_changes() noexcept {
        order_.swap(core_->order);
        has_order_ = true;
    }
    void is_left() noexcept {
        core_ = nullptr;
        if (std::exchange(has_order_, false)) order_ = {};
    }

private:
    engine<Plan>* core_;
    std::size_t restored_set_;
    bool is_first_fit_;
    std::uint64_t epoch_;
    std::size_t position_, epoch_samples_;
    double epoch_loss_;
    decltype(engine<Plan>::order) order_;
    bool has_order_ = false;
};

/// Calls f() when it is left.
template <class F>
struct at_the_end {
    const F& f;
    explicit at_the_end(const F& of) noexcept : f{of} {}
    at_the_end(const at_the_end&) = delete;
    at_the_end& operator=(const at_the_end&) = delete;
    ~at_the_end() { f(); }
};

/// Where the minibatch of a step begins in the order of its epoch: where the step does, or where it did in a measured
/// run that is replayed. Throws core::error where that is in another epoch.
template <class Plan>
[[nodiscard]] std::size_t place_of_minibatch(const engine<Plan>& core, const step_place& of, std::size_t n) {
    const std::uint64_t minibatch = core.minibatch_of(of.step);
    if (minibatch == of.step) return of.position;
    const std::size_t batch = core.plan.batch, before = of.position / batch, after = (n - of.position - 1) / batch;
    if (minibatch + before < of.step || minibatch > of.step + after)
        core::fail(core::text("step ", of.step + 1, " takes minibatch ", minibatch,
                              " of the run, in an epoch of minibatches ", of.step - before, " to ", of.step + after),
                   "replay a list of arrivals with the data set and the batch of its run");
    return of.position + minibatch * batch - of.step * batch;
}

/// trainer::fit() with checked types. `self`: what observers are shown.
template <class Plan, class Trainer, class Dataset, class Until, class... Observers>
report::fit_made fit(engine<Plan>& core, Trainer& self, const Dataset& set, Until until, Observers&... observers) {
    using clock = std::chrono::steady_clock;
    constexpr bool is_timed = std::is_same_v<Until, report::seconds>;
    constexpr bool is_measured = sync::is_measured<std::remove_const_t<decltype(core.plan.sync)>>;
    report::check_observers<Trainer, Observers...>();
    const auto called = clock::now();
    core.require_no_fit("fit()");
    const fit_guard here{core.is_in_fit};
    const std::size_t n = require_samples(set, "fit");
    require_equal(core.ranks, n, "samples to fit");
    agree_on(core.ranks, set);
    require_same_samples<typename engine<Plan>::T>(core.ranks, set, n);
    require_same_end(core.ranks, until);
    core.ranks.aborts().passed();
    report::recorder* recorder = nullptr;
    saving::alike(core.ranks, [&] { recorder = report::recorder_of(observers...); });
    const report::recording<typename engine<Plan>::strategy_type> recorded{core.strategy, recorder};
    if constexpr ((requires { observers.files(); } || ...))
        saving::together<core::error>(core.ranks, [&] { report::require_different_outputs(core.ranks, observers...); });
    // Another set begins an epoch with its first step: one that is under way ends there.
    constexpr bool compares_orders = !data::is_pure<std::remove_const_t<decltype(core.plan.sampler)>>;
    const std::size_t per_epoch = (n - 1) / core.plan.batch + 1;
    const bool is_known = core.order.size() == n, ends = !is_known && core.restored_set != n && core.position > 0;
    const std::size_t place = ends ? 0 : core.position;
    // The batch may have changed in the middle of an epoch.
    const std::size_t minibatches_left = (n - place - 1) / core.plan.batch + 1;
    // That of a run that goes on ends none: another one is an error with the first step.
    const std::uint64_t ended = ends && core.restored_set == 0 ? 1 : 0;
    const std::uint64_t asked = steps_until(
        until, report::fit_begin{core.epoch + ended, core.totals.steps, per_epoch, per_epoch - minibatches_left});
    // A part of a run that is over leaves it to the next part to go on with what was.
    const bool is_past =
        report::is_past(until, {core.epoch, core.totals.steps, per_epoch, core.position > 0 ? 1U : 0U});
    [[maybe_unused]] const report::run_begin begun{
        core.resumed_after, core.totals.steps, core.epoch + (asked > 0 ? ended : 0),
        core.is_first_fit,  is_past,           core.resumes,
        core.position > 0,  core.number};
    (require_validation(core, observers), ...);
    (require_monitored<Trainer>(core, observers, observers...), ...);
    require_one_best(core, observers...);
    if ((report::sees_begin<std::remove_const_t<Observers>, Trainer> || ...)) (void)core.whole_weights();
    bool goes_on = true;
    [[maybe_unused]] const auto begin = [&](auto& observer) {
        using type = std::remove_reference_t<decltype(observer)>;
        const auto tell = [&] { goes_on = report::tell_begin(observer, core.ranks, self, begun) && goes_on; };
        if constexpr (report::gathers_first<type> && report::hears_begin<type, Trainer>)
            saving::together<core::error>(core.ranks, tell);
        else
            tell();
    };
    (begin(observers), ...);
    if (!is_past) require_same_best(core, observers...);
    require_own_folders(core, observers...);
    if constexpr ((report::ends_at_begin<std::remove_const_t<Observers>, Trainer> || ...))
        goes_on = all_go_on(core.ranks, goes_on);
    std::uint64_t left = goes_on ? asked : 0;
    kept_place<Plan> before{core};
    if (left > 0 || (core.restored_set == n && core.position > 0)) {
        require_restored_set(core, n);
        require_last_minibatch<typename engine<Plan>::net>(n, place, core.plan.batch, left);
        if (!is_known) {
            before.order_changes();
            core::with_memory("the order of the samples", n * sizeof(core.order[0]),
                              "fit fewer samples, or use a machine with more memory", [&] { core.order.assign(n, 0); });
        }
        core.restored_set = 0;
        core.position = place;
        if (ends) ++core.epoch;
        if (!is_known && place == 0) core.begin_epoch();
        if (!is_known || place > 0) {
            core.plan.sampler.order(n, core.epoch, core.plan.seed, core.order);
            if (!is_known || compares_orders)
                require_same_order(core.ranks, hash_of_order(core.order, core.epoch), n, core.epoch);
        }
    }
    if (!is_past) core.is_first_fit = false;
    std::uint64_t order_hash = 0;
    const auto put_in_order = [&](std::uint64_t epoch) {
        core.plan.sampler.order(n, epoch, core.plan.seed, core.order);
        if constexpr (compares_orders) order_hash = hash_of_order(core.order, epoch);
    };
    const auto load = [&](const step_place& at, bool ahead) {
        if (at.position == 0) put_in_order(at.epoch);
        const std::size_t first = place_of_minibatch(core, at, n);
        const auto own = core.rows_to_read(std::min(core.plan.batch, n - first));
        const std::span<const std::uint64_t> rows = std::span{core.order}.subspan(first + own.first, own.size());
        return core.samples.template read<Dataset>(set, rows, {core.plan.seed, at.epoch}, ahead);
    };
    core::stop_request::listener listens;
    std::optional<time_limit::use> limited;
    if constexpr (is_timed) limited.emplace(core.limit, called, until.count);
    read_ahead minibatches{load, core.plan.prefetch};
    const auto start = clock::now();
    std::size_t seen = 0;
    std::uint64_t done = 0;
    report::epoch_event epoch;
    epoch.epoch = core.epoch + 1;
    auto epoch_start = start;
    double aside = 0;  // seconds of observers that work on all ranks
    int stop_signal = 0;
    auto& made = core.totals.last_fit = {};
    const auto compare_order = [&] {
        if constexpr (compares_orders)
            if (core.position == 0) require_same_order(core.ranks, order_hash, n, core.epoch);
    };
    const auto make_step = [&] {
        if constexpr (is_measured) {  // the next update of a round in which ranks do what they are ready for
            auto& learner = learner_of(core);
            if (learner.is_idle()) {
                if (core.position == 0) put_in_order(core.epoch);
                compare_order();
            }
            const std::uint64_t in_epoch = (n - core.position - 1) / core.plan.batch + 1,
                                most = core.plan.sync.drain_every;
            return learner.next(set, std::min({left, in_epoch, most > 0 ? most : in_epoch}), listens);
        } else {
            const step_place at{core.epoch, core.position, core.totals.steps};
            core.strategy.begin(at.step);
            auto data_start = clock::now();
            core.rows.whole(std::min(core.plan.batch, n - place_of_minibatch(core, at, n)), engine<Plan>::least_rows);
            const auto [x, y, count] = minibatches.take(at, core.samples);
            compare_order();
            const std::size_t next = core.position + std::min(core.plan.batch, n - core.position);
            if (left > 1)
                minibatches.begin({next == n ? core.epoch + 1 : core.epoch, next == n ? 0 : next, at.step + 1});
            core.totals.seconds.data += report::lap(data_start);
            listens.step_begins(data_start);
            core.limit.step_begins(data_start);
            auto event = core.run_step(x, y);
            if (core.plan.prefetch) {  // observers may read the data set, or evaluate: one thread reads it at a time
                auto wait_start = clock::now();
                minibatches.wait();
                core.totals.seconds.data += report::lap(wait_start);
            }
            return event;
        }
    };
    const auto count_step = [&](report::step_event& event) noexcept {
        core.epoch_loss += event.loss * static_cast<double>(event.samples);
        core.epoch_samples += event.samples;
        core.position += std::min(core.plan.batch, n - core.position);
        epoch.loss = core.epoch_loss / static_cast<double>(core.epoch_samples);
        event.ends_epoch = core.position == n;
        if (!event.ends_epoch) return;
        core.begin_epoch();
        ++core.epoch;
    };
    // Weights are those after a round: an observer that throws within it leaves its updates counted.
    const auto end_round = [&]() noexcept {
        if constexpr (is_measured)
            while (core.strategy.learner() != nullptr && !learner_of(core).is_idle()) {
                report::step_event event = learner_of(core).tell();
                count_step(event);
            }
    };
    const at_the_end rest{end_round};
    bool is_asked_to_end = false;
    while (left > 0) {
        report::step_event event = make_step();
        if constexpr (is_measured) event.has_weights = learner_of(core).is_idle();
        count_step(event);
        seen += event.samples;
        const auto now = clock::now();
        event.seconds = std::chrono::duration<double>(now - start).count() - aside;
        if constexpr (is_measured)
            event.seconds = std::chrono::duration<double>(learner_of(core).began() - start).count() - aside +
                            learner_of(core).seconds();
        event.samples_per_second = static_cast<double>(seen) / event.seconds;
        if constexpr (!is_measured) {
            listens.step_ends(now);
            core.limit.step_ends(now);
        }
        stop_signal = event.stop_signal;
        if (stop_signal != 0) listens.stops();
        before.is_left();
        event.steps_done = ++done;
        event.steps_left = --left;
        if constexpr (is_timed) {
            if (event.time_is_over) left = 0;
            event.steps_left = left > 0 ? 1 : 0;
            event.seconds_asked = until.count;
            event.seconds_used = std::chrono::duration<double>(now - called).count();
        }
        made = {done, std::chrono::duration<double>(now - called).count(), stop_signal};
        if ((report::sees_weights<std::remove_const_t<Observers>, Trainer> || ...)) (void)core.whole_weights();
        event.spent = core.spent_since();
        goes_on = true;
        report::each_in_turn(
            [&](auto& one) {
                if constexpr (report::sees_weights<std::remove_cvref_t<decltype(one)>, Trainer>)
                    if (!event.has_weights) return;
                goes_on = tell_step(one, core.grid.rank, self, event) && goes_on;
            },
            observers...);
        if constexpr ((report::ends_at_step<std::remove_const_t<Observers>, Trainer> || ...))
            if (!all_go_on(core.ranks, goes_on)) is_asked_to_end = true;
        if (is_asked_to_end && event.has_weights) left = 0;
        if (stop_signal != 0 && core.position != 0) break;
        if (core.position != 0 && left > 0) continue;
        epoch.seconds = report::seconds_since(epoch_start);
        if ((report::sees_epochs<std::remove_const_t<Observers>, Trainer> || ...))
            (void)core.whole_weights();
        else
            core.strategy.complete();
        const auto pause = clock::now();
        goes_on = true;
        report::each_in_turn([&](auto& one) { goes_on = tell_epoch(one, core.grid.rank, self, epoch) && goes_on; },
                             observers...);
        if constexpr ((report::ends_at_epoch<std::remove_const_t<Observers>, Trainer> || ...))
            if (!all_go_on(core.ranks, goes_on)) left = 0;
        aside += report::seconds_since(pause);
        core.totals.epochs.push_back(epoch);
        if (stop_signal != 0) break;
        epoch = {};
        epoch.epoch = core.epoch + 1;
        epoch_start = clock::now();
    }
    before.is_left();
    // A signal has ended it within an epoch. Nothing is under way where ranks part: some observers look at weights.
    core.strategy.complete();
    // One that came while observers heard of the last step ends the run where one of them saves it. Elsewhere the
    // program keeps what the complete fit() has made.
    if constexpr ((report::hears_stop<Observers, Trainer> || ...))
        if (done > 0 && stop_signal == 0) {
            const bool saves = (report::saves_at_stop<Trainer, Observers>(observers, core.grid.rank) || ...);
            made.stop_signal = stop_signal = late_signal(core.ranks, saves);
            if (stop_signal != 0) listens.stops();
        }
    // A fit() of no step has come by no epoch, and one that a signal has ended perhaps by none of late.
    if ((done == 0 || stop_signal != 0) && (report::sees_epochs<std::remove_const_t<Observers>, Trainer> || ...))
        (void)core.whole_weights();
    if (stop_signal != 0)
        report::each_in_turn([&](auto& one) { tell_stop(one, core.grid.rank, self, self.report()); }, observers...);
    report::each_at_the_end([&](auto& one) { tell_end(one, core.grid.rank, self, self.report()); }, observers...);
    core.ranks.end_together();  // observers of all ranks have had the chance to fail
    return made;
}

}  // namespace lockstep::train
