// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A search for the learning rate: steps with ever higher rates, from which the trainer comes back. Opt-in: programs
// include it, lockstep.hpp does not.
// Tested by tests/training/find_learning_rate.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/stop_request.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/rate_search.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/train/fit.hpp"
#include "lockstep/train/run_facts.hpp"

namespace lockstep::train {

using optim::rate_range;
using optim::rate_search;

/// The search runs alike on all ranks. Collective.
[[gnu::cold]] inline void require_same_range(const comm::group& ranks, const rate_range& range) {
    const std::array<double, 5> mine{range.from, range.to, static_cast<double>(range.steps), range.smoothing,
                                     range.ends_above};
    constexpr std::array names{"from", "to", "steps", "smoothing", "ends_above"};
    const auto all = ranks.gather_all(mine);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        for (std::size_t i = 0; i < mine.size(); ++i)
            if (core::hash(std::as_bytes(std::span{&all[rank][i], 1})) !=
                core::hash(std::as_bytes(std::span{&all[0][i], 1})))
                core::fail(core::text("rank 0 searches a learning rate with ", names[i], " = ", all[0][i], ", rank ",
                                      rank, " with ", all[rank][i]),
                           "call find_learning_rate() with the same range on every rank");
    range.check();
}

namespace detail {

/// All that outlives a step on this rank, as it was.
template <class Plan>
class kept_run {
    using T = typename engine<Plan>::T;

public:
    [[gnu::cold]] explicit kept_run(engine<Plan>& of)
        : of_{of},
          order_{of.order},
          epoch_{of.epoch},
          position_{of.position},
          epoch_loss_{of.epoch_loss},
          epoch_samples_{of.epoch_samples},
          restored_set_{of.restored_set},
          resumed_after_{of.resumed_after},
          is_first_fit_{of.is_first_fit},
          has_loaded_{of.change.state().loaded},
          totals_{of.totals} {
        of.visit_state(*this);
    }

    /// Collective. What follows from the state is brought up to date as after resume().
    [[gnu::cold]] void put_back() {
        puts_back_ = true;
        of_.change.begin();
        of_.prepare_state(totals_.steps);
        of_.visit_state(*this);
        of_.restored({.steps = totals_.steps,
                      .epoch = epoch_,
                      .position = position_,
                      .samples = totals_.samples,
                      .best_epoch = of_.best.epoch,
                      .best_loss = of_.best.loss});
        of_.epoch_loss = epoch_loss_;
        of_.epoch_samples = epoch_samples_;
        of_.order = std::move(order_);
        of_.restored_set = restored_set_;
        of_.resumed_after = resumed_after_;
        of_.is_first_fit = is_first_fit_;
        // Seconds that were spent stay, with all that is divided by them.
        totals_.seconds = of_.totals.seconds;
        totals_.timed_steps = of_.totals.timed_steps;
        totals_.timed_samples = of_.totals.timed_samples;
        totals_.bytes_sent = of_.totals.bytes_sent;
        of_.totals = std::move(totals_);
        of_.told = of_.strategy.times().added_to(of_.totals.seconds);
        if (has_loaded_) of_.change.loaded();
        of_.ranks.end_together();
    }

    template <class U>
    void operator()(const tensor::state_part<U>& part) {
        auto& all = numbers(part);
        if (puts_back_) {
            std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at(part)), part.numbers.size(), part.numbers.begin());
            at(part) += part.numbers.size();
        } else {
            all.insert(all.end(), part.numbers.begin(), part.numbers.end());
        }
    }

private:
    std::vector<T>& numbers(const tensor::state_part<T>&) { return numbers_; }
    std::vector<std::uint64_t>& numbers(const tensor::state_part<std::uint64_t>&) { return counters_; }
    std::size_t& at(const tensor::state_part<T>&) { return at_[0]; }
    std::size_t& at(const tensor::state_part<std::uint64_t>&) { return at_[1]; }

    engine<Plan>& of_;
    std::vector<T> numbers_;
    std::vector<std::uint64_t> counters_;
    std::array<std::size_t, 2> at_{};
    bool puts_back_ = false;
    std::vector<std::uint64_t> order_;
    std::uint64_t epoch_;
    std::size_t position_;
    double epoch_loss_;
    std::size_t epoch_samples_, restored_set_;
    std::uint64_t resumed_after_;
    bool is_first_fit_, has_loaded_;
    report::totals totals_;
};

/// Tells the search each loss, and the trainer each next rate.
template <class Plan>
struct rate_steps {
    static constexpr bool on_every_rank = true, sees_weights = false;
    engine<Plan>& of;
    const rate_range& range;
    rate_search& out;

    bool on_step(const report::step_event& event) {
        const bool goes_on = out.add(range, event.rate, event.loss);
        of.trial_rate = range.rate(out.curve.size());
        return goes_on;
    }
};

}  // namespace detail

/// Trains the trainer for up to `range.steps` steps on the next minibatches of fit(set), with rates that grow from step
/// to step in place of the plan's schedule, until the loss diverges. Then weights, statistics, optimizer, residuals and
/// the place in the data set are what they were, so that a run after it has the bits of one without it; only the report
/// knows of it, by its seconds, `timed_steps`, `timed_samples` and bytes, and the statistics of a compress::measured.
/// Equal answers on any number of ranks. Cost: the steps, and a copy of the rank's state. Errors: those of fit(); a
/// loss or weights that are not finite end the search and are none. A signal ends it as it ends fit(). Collective. L.
/// N. Smith, "Cyclical learning rates for training neural networks", WACV 2017 (2015); the exponential form and the
/// tenth of the best are those of fastai (Howard, Gugger 2020).
template <class Plan, template <class> class Trainer, class Dataset>
[[gnu::cold]] rate_search find_learning_rate(Trainer<Plan>& trainer, const Dataset& set, const rate_range& range = {},
                                             const std::source_location& where = std::source_location::current()) {
    rate_search out;
    int stop_signal = 0;
    engine<Plan>& core = engine_access::of(trainer);
    using core_type = engine<Plan>;
    static_assert(!sync::is_measured<decltype(core.plan.sync)>,
                  "lockstep: find_learning_rate changes the rate after each step, and the ranks of "
                  "sync::parameter_server make some steps before any is told: search with sync::every_step{}");
    if constexpr (check_dataset<Dataset, typename core_type::T, typename core_type::input, typename core_type::label,
                                typename core_type::loss_type>())
        core.on_all_ranks("find_learning_rate", where, [&] {
            core.require_no_fit("find_learning_rate()");
            require_same_range(core.ranks, range);
            detail::kept_run<Plan> kept{core};
            struct trial {
                std::optional<double>& rate;
                ~trial() { rate.reset(); }
            };
            const auto run = [&] {
                const trial until_the_end{core.trial_rate};
                core.trial_rate = range.rate(0);
                detail::rate_steps<Plan> steps{core, range, out};
                stop_signal = fit(core, trainer, set, report::steps{range.steps, where}, steps).stop_signal;
            };
            try {
                run();
            } catch (...) {
                // On several ranks the trainer does nothing more; alone it goes on, with the weights that it had.
                if (core.ranks.size() == 1) {
                    core.strategy.abandon();
                    kept.put_back();
                }
                throw;
            }
            kept.put_back();
        });
    core.end_if_told(stop_signal);
    out.conclude();
    return out;
}

}  // namespace lockstep::train

namespace lockstep {
using optim::rate_range;
using optim::rate_search;
using train::find_learning_rate;
}  // namespace lockstep
