// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Steps of a trainer on rows that ranks already have in memory: one of them, or as many as a time allows.
// Tested by tests/training/control.cpp.

#include <chrono>
#include <cmath>
#include <cstddef>
#include <source_location>

#include "lockstep/report/events.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/tensor/container.hpp"
#include "lockstep/train/run_facts.hpp"

namespace lockstep::train {

/// The part of a trainer that trains without a data set.
template <class Plan>
class stepping : public run_facts<Plan> {
    using core_type = engine<Plan>;

public:
    /// One step on rows that each rank already has in memory, also none; together they are the minibatch. A rank has
    /// room for the most rows that fit() would deal to any rank: batch x the lanes of the one that has most / lanes,
    /// rounded up. Where no rank has any, all throw, and the trainer goes on. Where weights of a strip become infinite
    /// or NaN, its owner throws; the other ranks do at the latest in their next call. `x`: rows x the input shape; `y`:
    /// a class number, or the wanted output, for each row. x is not copied if its elements are T. Not for observers of
    /// a fit().
    template <class X, class Y>
    report::step_event step(const X& x, const Y& y,
                            const std::source_location& where = std::source_location::current()) {
        core_type& core = *core_;
        return core.on_all_ranks("step", where, [&] {
            core.require_no_fit("step()");
            const auto rows = take(core, x, y);
            core.rows.brought(core.counts.gather(rows.count));
            require_rows(core);
            core.strategy.begin(core.totals.steps);
            const auto [x_here, y_here] = core.of_group(rows.x, rows.y);
            auto event = core.run_step(x_here, y_here);
            core.strategy.complete();
            core.ranks.aborts().passed();
            event.spent = core.spent_since();
            return event;
        });
    }

    /// Steps on such rows until the time is over, on all ranks alike: rank 0's clock and its `budget` decide, those of
    /// others are not looked at. No step is begun that is expected to end later, by how long the last one took. So
    /// there may be none, as for a budget of zero or less; where only the expectation forbids the first one, it is
    /// halved, and a later call tries again. A request of core::stop_request, or a signal that an earlier fit() has
    /// noted, ends the call after its step. Costs what step() costs, but rows are looked at and counted once. `budget`:
    /// a duration of std::chrono. Collective.
    template <class Rep, class Period, class X, class Y>
    report::steps_made step_for(std::chrono::duration<Rep, Period> budget, const X& x, const Y& y,
                                const std::source_location& where = std::source_location::current()) {
        core_type& core = *core_;
        return core.on_all_ranks("step_for", where, [&] {
            core.require_no_fit("step_for()");
            using clock = time_limit::clock;
            const auto called = clock::now();
            const double given = std::chrono::duration<double>(budget).count();
            const double seconds = core.grid.rank == 0 ? given : 0;
            if (!std::isfinite(seconds))
                core::fail(core::text("step_for was given a budget of ", seconds, " s"), "pass a duration such as 2ms");
            const auto rows = take(core, x, y);
            const time_limit::use limited{core.limit, called, seconds};
            const auto counts = core.counts.gather(rows.count, core.grid.rank == 0 && !core.limit.allows_first(called));
            core.rows.brought(counts);
            require_rows(core);
            report::steps_made out;
            const auto [x_here, y_here] = core.of_group(rows.x, rows.y);
            for (bool goes_on = !core.counts.first_declines(); goes_on; ++out.steps) {
                core.strategy.begin(core.totals.steps);
                core.limit.step_begins(clock::now());
                const auto event = core.run_step(x_here, y_here);
                core.limit.step_ends(clock::now());
                out.loss = event.loss;
                out.stop_signal = event.stop_signal;
                goes_on = !event.time_is_over && event.stop_signal == 0;
            }
            core.strategy.complete();
            core.ranks.aborts().passed();
            out.step = core.totals.steps;
            out.spent = core.spent_since();
            out.seconds = report::seconds_since(called);
            return out;
        });
    }

protected:
    using run_facts<Plan>::run_facts;
    using run_facts<Plan>::core_;

private:
    /// What a call brings. A container that cannot be viewed has a message before anything looks at it.
    template <class X, class Y>
    static auto take(core_type& core, const X& x, const Y& y) {
        if constexpr (tensor::check_containers<X, Y>())
            return core.samples.take(x, y);
        else
            return typename decltype(core_type::samples)::rows{};
    }
    /// All ranks know the rows of all: after such an error the trainer goes on.
    static void require_rows(const core_type& core) {
        saving::alike(core.ranks, [&] {
            if (core.rows.rows() == 0)
                core::fail("no rank brought a sample to this step", "call step() with at least one row on some rank");
            require_step_rows<typename core_type::net>(core.rows, core.grid);
        });
    }
};

}  // namespace lockstep::train
