// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a run tells its observers, and the report at its end.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::report {

/// Why a rank waited. Estimates of report/overlap_clock.hpp, but `slow_rank`, which ranks tell each other with their
/// losses.
struct exposed_because {
    double last_bucket = 0;   ///< nothing was left to compute beside it: the last sum, the weights of the first layer
    double no_progress = 0;   ///< it could have been there, had the rank polled in time
    double large_bucket = 0;  ///< it started early enough to be hidden in part, and there was too much of it
    double slow_rank = 0;     ///< another rank had not finished its work
    double other = 0;         ///< redistributions of a model partition, statistics, losses on their way

    /// All of them, in seconds.
    [[nodiscard]] double sum() const noexcept { return last_bucket + no_progress + large_bucket + slow_rank + other; }
};

/// Wall time of one rank. Communication is hidden while kernels run beside it, exposed while the rank does nothing but
/// wait for it.
struct seconds_spent {
    double data = 0;      ///< reading samples and labels, in seconds, as all of these
    double forward = 0;   ///< kernels of forward and the loss
    double backward = 0;  ///< kernels of backward
    double update =
        0;  ///< of this rank's strips; through shared memory also their sums and the copies into other ranks' weights
    double communication_hidden = 0;   ///< under way while kernels ran
    double communication_exposed = 0;  ///< waited for
    exposed_because because{};         ///< sums up to communication_exposed

    /// Hidden and exposed.
    [[nodiscard]] double communication() const noexcept { return communication_hidden + communication_exposed; }
    /// Wall time: all but what is hidden.
    [[nodiscard]] double total() const noexcept { return data + forward + backward + update + communication_exposed; }
};

[[nodiscard, gnu::noinline]] inline seconds_spent operator-(const seconds_spent& a, const seconds_spent& b) noexcept {
    return {.data = a.data - b.data,
            .forward = a.forward - b.forward,
            .backward = a.backward - b.backward,
            .update = a.update - b.update,
            .communication_hidden = a.communication_hidden - b.communication_hidden,
            .communication_exposed = a.communication_exposed - b.communication_exposed,
            .because = {.last_bucket = a.because.last_bucket - b.because.last_bucket,
                        .no_progress = a.because.no_progress - b.because.no_progress,
                        .large_bucket = a.because.large_bucket - b.because.large_bucket,
                        .slow_rank = a.because.slow_rank - b.because.slow_rank,
                        .other = a.because.other - b.because.other}};
}

/// How many steps or epochs a fit() is to run. epochs{10}: ten more epochs. steps{200}: 200 more steps.
/// Where it is written stands for the place of the call in messages.
struct epochs {
    std::size_t count = 1;                                         ///< how many
    std::source_location where = std::source_location::current();  ///< named in messages
};
/// Steps of a fit(), counted from where it is.
struct steps {
    std::size_t count = 1;                                         ///< how many
    std::source_location where = std::source_location::current();  ///< named in messages
};

/// The same for the whole run, whatever a checkpoint or earlier calls have done of it: none, if it is that far already.
struct until_epoch {
    std::size_t count = 1;                                         ///< how many
    std::source_location where = std::source_location::current();  ///< named in messages
};
/// Steps of the whole run.
struct until_step {
    std::size_t count = 1;                                         ///< how many
    std::source_location where = std::source_location::current();  ///< named in messages
};

/// seconds{600}: so much wall-clock time from the call on, by the clock of rank 0, with all that observers do in it. No
/// step is begun that is expected to end later, by how long the one before it took; but where the time is not 0, there
/// is one step at least. How many there are depends on the machine, what they compute does not: so many steps{n} have
/// the same bits.
struct seconds {
    double count;                ///< how many
    std::source_location where;  ///< named in messages

    /// seconds{600}
    constexpr seconds(double number, const std::source_location& at = std::source_location::current())
        : count{number}, where{at} {}
    /// seconds{10min}
    template <class Rep, class Period>
    constexpr seconds(std::chrono::duration<Rep, Period> time,
                      const std::source_location& at = std::source_location::current())
        : count{std::chrono::duration<double>(time).count()}, where{at} {}
};

/// Where a fit() begins: epochs and steps of the run that are done, and minibatches of the epoch that it is in.
struct fit_begin {
    std::uint64_t epochs = 0;     ///< done in the run
    std::uint64_t steps = 0;      ///< done in the run
    std::size_t minibatches = 0;  ///< of an epoch
    std::size_t begun = 0;        ///< of them
};

/// Steps of a fit(). Throws core::error above core::largest_size.
[[nodiscard]] inline std::uint64_t steps_until(const epochs& until, const fit_begin& from) {
    const std::size_t all = core::checked_product("steps of a fit() of so many epochs", until.count, from.minibatches);
    return until.count > 0 ? all - from.begun : 0;
}
[[nodiscard]] inline std::uint64_t steps_until(const steps& until, const fit_begin&) noexcept { return until.count; }
[[nodiscard]] inline std::uint64_t steps_until(const until_epoch& until, const fit_begin& from) {
    return until.count > from.epochs ? steps_until(epochs{until.count - from.epochs}, from) : 0;
}
[[nodiscard]] inline std::uint64_t steps_until(const until_step& until, const fit_begin& from) noexcept {
    return until.count > from.steps ? until.count - from.steps : 0;
}

/// Whether a run was there and has gone on: a fit() of no steps that is not the last one that was made.
template <class Until>
[[nodiscard]] bool is_past(const Until&, const fit_begin&) noexcept {
    return false;
}
[[nodiscard]] inline bool is_past(const until_epoch& until, const fit_begin& from) noexcept {
    return from.epochs > until.count || (from.epochs == until.count && from.begun > 0);
}
[[nodiscard]] inline bool is_past(const until_step& until, const fit_begin& from) noexcept {
    return from.steps > until.count;
}

/// As many as there are room for: the time decides.
[[nodiscard]] inline std::uint64_t steps_until(const seconds& until, const fit_begin&) noexcept {
    return until.count > 0 ? core::largest_size : 0;
}

/// Before the first step of a fit().
struct run_begin {
    std::uint64_t resumed_after = 0;  ///< steps of the checkpoint that the run goes on from; 0: none
    std::uint64_t steps = 0;          ///< of the run, that are done
    std::uint64_t epochs = 0;         ///< the same
    bool is_first = true;             ///< no fit() that was not past came before, since the checkpoint if there is one
    bool is_past = false;             ///< this one ends before where the run is: a part of it that is over
    std::uint64_t resumes = 0;        ///< how often the trainer was resumed; more than an observer has seen of it:
                                      ///< what that has noted after `resumed_after` is undone
    bool is_in_epoch = false;         ///< a part of an epoch is done
    std::uint64_t run = 0;            ///< number of the trainer in this process, from 1

    /// Whether the trainer was resumed since an observer has seen it, which counts that in `known`.
    [[nodiscard]] bool undoes(std::uint64_t& known) const noexcept { return resumes > std::exchange(known, resumes); }
    /// Whether nothing was done between the checkpoint and this fit().
    [[nodiscard]] bool is_resumed() const noexcept { return is_first && resumed_after > 0 && resumed_after == steps; }
};

/// After each step.
struct step_event {
    std::uint64_t step = 0;         ///< 1 for the first step of the trainer
    std::uint64_t epoch = 0;        ///< 1 for the first
    std::size_t samples = 0;        ///< of this minibatch
    double loss = 0;                ///< mean over the minibatch
    double rate = 0;                ///< learning rate
    int stop_signal = 0;            ///< asks for the end of the run, on all ranks alike; 0: nothing does
    bool ends_epoch = false;        ///< the last one of its epoch: on_epoch() follows
    bool time_is_over = false;      ///< the last step of a fit() for some seconds, on all ranks alike
    double seconds = 0;             ///< since fit() began
    std::uint64_t steps_done = 0;   ///< of this fit()
    std::uint64_t steps_left = 0;   ///< of a fit() for some seconds: 1 until the last one, which has 0
    double seconds_asked = 0;       ///< of a fit() for some seconds; 0: it counts steps
    double seconds_used = 0;        ///< of these: since fit() was called, with what observers did, on this rank
    double samples_per_second = 0;  ///< since fit() began
    seconds_spent spent{};          ///< on this rank, since the end of the step before
    bool has_weights = true;        ///< those after it; false in a round of sync::parameter_server, but for its last
};

/// What a fit() returns.
struct fit_made {
    std::uint64_t steps = 0;  ///< of this fit()
    double seconds = 0;       ///< from the call to the end of its last step, with observers; on this rank
    int stop_signal = 0;      ///< what has ended it, on all ranks alike; 0: nothing has
};

/// What trainer.step_for() returns.
struct steps_made {
    std::uint64_t steps = 0;     ///< of this call, equal on all ranks; 0: the time allowed none
    std::uint64_t step = 0;      ///< of the trainer, after them
    std::optional<double> loss;  ///< of the last one, before its update: mean over the rows of all ranks
    double seconds = 0;          ///< of the call, on this rank
    int stop_signal = 0;         ///< asks for the end of the run, on all ranks alike; 0: nothing does
    seconds_spent spent{};       ///< on this rank
};

/// What a metric has measured over a data set: a mean over its samples, or what its result() makes of sums and maxima.
struct metric_value {
    std::string_view name;  ///< as in the metric: found["top_k"]
    double value = 0;       ///< of the metric, as one number
};

/// The mean loss and the share of correctly classified samples (classification only) over a data set, and the metrics
/// that were asked for.
struct evaluation {
    double loss = 0;                      ///< mean over the samples
    std::optional<double> accuracy;       ///< share in [0, 1]; nothing where classes have no outputs of their own
    std::size_t samples = 0;              ///< that were evaluated
    std::vector<metric_value> metrics{};  ///< those that are one number, in the order of the list

    /// The metric of this name, "accuracy" or "loss". Throws core::error if it was not asked for.
    [[nodiscard]] double operator[](std::string_view name) const;
};

/// After each epoch, or the part of one that fit() ran; not where a signal has ended it within one.
struct epoch_event {
    std::uint64_t epoch = 0;         ///< 1 for the first
    double loss = 0;                 ///< mean over the samples of the epoch that are done, also before a checkpoint
    double seconds = 0;              ///< of the part of it that this fit() ran, without validation
    std::optional<evaluation> test;  ///< of validate{set}, named before; nothing without it
};

/// Bytes of a trainer's memory on one rank, all of it there before the first step.
struct memory_by_kind {
    std::size_t weights = 0;    ///< and running statistics
    std::size_t gradients = 0;  ///< of weights: one set for each node of the rank's lanes
    std::size_t optimizer = 0;  ///< momenta and the like
    std::size_t activations =
        0;  ///< what layers keep for backward, gradients of activations, and `scratch`; dead memory is used again
    std::size_t scratch = 0;   ///< the most that one layer works with, a part of `activations`
    std::size_t messages = 0;  ///< sums of gradients on their way, state of the compressor
    std::size_t data = 0;      ///< samples and labels, and what is left

    /// All kinds, in bytes.
    [[nodiscard]] std::size_t sum() const noexcept {
        return weights + gradients + optimizer + activations + data + messages;
    }
};

/// What has been done.
struct totals {
    std::uint64_t steps = 0;          ///< of the run
    std::uint64_t samples = 0;        ///< of all ranks together, the same
    std::uint64_t timed_steps = 0;    ///< since the trainer was made: those of `seconds`
    std::uint64_t timed_samples = 0;  ///< the same
    std::size_t ranks = 1;            ///< of the trainer
    std::size_t threads = 1;          ///< on each rank
    seconds_spent seconds;            ///< of this rank, of timed_steps; observers are told those of rank 0
    std::size_t bytes_sent = 0;       ///< by this rank
    std::vector<epoch_event> epochs;  ///< since the trainer was made
    fit_made last_fit;                ///< the one that is under way or the last one

    /// Samples of all ranks for each second of wall time, since the trainer was made.
    [[nodiscard]] double samples_per_second() const noexcept {
        return seconds.total() > 0 ? static_cast<double>(timed_samples) / seconds.total() : 0;
    }
    /// Wall time x ranks x threads, since the trainer was made.
    [[nodiscard]] double core_hours() const noexcept {
        return seconds.total() * static_cast<double>(ranks * threads) / 3600;
    }
};

/// Ten lines for people.
[[nodiscard, gnu::cold]] std::string to_text(const totals& run);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION double evaluation::operator[](std::string_view name) const {
    std::string known = "loss";
    for (const auto& metric : metrics) {
        if (metric.name == name) return metric.value;
        known += core::text(", ", metric.name);
    }
    if (accuracy && name == "accuracy") return *accuracy;
    if (name == "loss") return loss;
    core::fail(core::text("there is no metric '", name, "'"),
               core::text(metrics.empty() ? "pass metrics::list{..} to evaluate(), or " : "", "choose one of: ", known,
                          accuracy ? ", accuracy" : ""));
}

LOCKSTEP_FUNCTION std::string to_text(const totals& run) {
    const double total = run.seconds.total();
    const auto line = [&](const char* name, double seconds) {
        std::string out = core::text("  ", name);
        out.resize(26, ' ');
        std::string number = core::fixed(seconds, 3);
        out += std::string(number.size() < 10 ? 10 - number.size() : 0, ' ') + number + " s";
        return out + core::text("  ", core::fixed(total > 0 ? 100 * seconds / total : 0, 1), " %\n");
    };
    std::string out =
        core::text(run.steps, " steps, ", core::grouped(run.samples), " samples, ", run.ranks,
                   run.ranks == 1 ? " rank x " : " ranks x ", run.threads,
                   run.threads == 1 ? " thread: " : " threads: ", core::fixed(run.samples_per_second(), 0),
                   " samples/s, ", core::fixed(run.core_hours(), 4), " core-hours\n");
    out += line("data", run.seconds.data) + line("forward", run.seconds.forward) +
           line("backward", run.seconds.backward) + line("update", run.seconds.update) +
           line("communication exposed", run.seconds.communication_exposed);
    const auto& because = run.seconds.because;
    if (run.last_fit.steps > 0 && run.last_fit.steps != run.steps)
        out += core::text("  of these in the last fit() ", run.last_fit.steps,
                          run.last_fit.steps == 1 ? " step in " : " steps in ", core::fixed(run.last_fit.seconds, 3),
                          " s\n");
    if (run.ranks > 1)
        out += core::text("  exposed because: last bucket ", core::fixed(because.last_bucket, 3), " s, no progress ",
                          core::fixed(because.no_progress, 3), " s, large bucket ",
                          core::fixed(because.large_bucket, 3), " s, slow rank ", core::fixed(because.slow_rank, 3),
                          " s, other ", core::fixed(because.other, 3), " s\n");
    out += core::text("  communication hidden behind the work ", core::fixed(run.seconds.communication_hidden, 3),
                      " s; ", core::grouped(run.bytes_sent), " bytes sent by rank 0\n");
    return out;
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::epochs;
using report::seconds;
using report::steps;
using report::until_epoch;
using report::until_step;
}  // namespace lockstep
