// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a trainer tells its observers. An observer has any of on_begin(), on_begin(ranks) or on_begin(run_begin),
// on_step(event), on_epoch(event), on_stop(report), on_end(report), the last five also with the trainer as first
// argument. Where on_begin, on_step or on_epoch returns false, the run ends there on all ranks.

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/metrics/list.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/report/recorder.hpp"

namespace lockstep::report {

/// `static constexpr bool on_every_rank = true`: the observer makes collective calls. Others are told on rank 0 only.
template <class Observer>
inline constexpr bool on_every_rank = false;
template <class Observer>
    requires requires { Observer::on_every_rank; }
inline constexpr bool on_every_rank<Observer> = Observer::on_every_rank;

/// `static constexpr bool owns_folder = true`: of one fit() no other such observer writes to its `folder`.
template <class Observer>
inline constexpr bool owns_folder = requires {
    requires Observer::owns_folder;
};

/// `static constexpr bool gathers_first = true`: what on_begin() gathers from ranks, it gathers before what may fail.
/// A core::error there, as one of an observer that is told on rank 0 only, is told to all ranks, and the trainer can
/// go on.
template <class Observer>
inline constexpr bool gathers_first = !on_every_rank<Observer>;
template <class Observer>
    requires requires { Observer::gathers_first; }
inline constexpr bool gathers_first<Observer> = Observer::gathers_first;

/// An observer that is given the trainer after each step finds all weights there, and so does one that works on every
/// rank: then they do not arrive during the next forward. One that does not look at them says `static constexpr bool
/// sees_weights = false`.
template <class Observer, class Trainer>
inline constexpr bool sees_weights = requires(Observer& o, Trainer& t, step_event& e) {
    o.on_step(t, e);
}
|| (on_every_rank<Observer> && requires(Observer & o, step_event& e) { o.on_step(e); });
template <class Observer, class Trainer>
    requires requires { Observer::sees_weights; }
inline constexpr bool sees_weights<Observer, Trainer> = Observer::sees_weights;

/// `static constexpr bool is_told_last = true`: the observer hears of a step, an epoch or a stop when all others have.
/// One that saves the run then also has what the others have made of it, whatever the order of their names.
template <class Observer>
inline constexpr bool is_told_last = requires {
    requires Observer::is_told_last;
};
/// `static constexpr bool changes_weights = true`: on_end() changes weights. It is told of the end before all others,
/// which then find the weights that the trainer keeps, whatever the order of their names.
template <class Observer>
inline constexpr bool changes_weights = requires {
    requires Observer::changes_weights;
};
/// f(observer) for each of them, in the order in which they hear of the end.
template <class F, class... Observers>
void each_at_the_end(const F& f, Observers&... observers) {
    (static_cast<void>(changes_weights<Observers> && (f(observers), true)), ...);
    (static_cast<void>(changes_weights<Observers> || (f(observers), true)), ...);
}
/// f(observer) for each of them, in the order in which they hear of a step, an epoch and a stop.
template <class F, class... Observers>
void each_in_turn(const F& f, Observers&... observers) {
    (static_cast<void>(is_told_last<Observers> || (f(observers), true)), ...);
    (static_cast<void>(is_told_last<Observers> && (f(observers), true)), ...);
}

/// An observer that is given the trainer after an epoch or at the end of a fit().
template <class Observer, class Trainer>
inline constexpr bool sees_epochs = requires(Observer& o, Trainer& t, epoch_event& e) {
    o.on_epoch(t, e);
}
|| requires(Observer& o, Trainer& t, const totals& r) { o.on_stop(t, r); }
|| requires(Observer& o, Trainer& t, const totals& r) { o.on_end(t, r); };

/// An observer that is given the trainer before the first step, and may look at weights.
template <class Observer, class Trainer>
inline constexpr bool sees_begin = requires(Observer& o, Trainer& t, const run_begin& from) {
    o.on_begin(t, from);
};
template <class Observer, class Trainer>
    requires requires { Observer::sees_weights; }
inline constexpr bool sees_begin<Observer, Trainer> = Observer::sees_weights;

/// The recorder of a timeline among the observers; null if there is none, or none with a path. Throws core::error where
/// two have one: a trainer records its steps once.
template <class... Observers>
[[nodiscard]] recorder* recorder_of(Observers&... observers) {
    recorder* found = nullptr;
    [[maybe_unused]] const auto look = [&](auto& observer) {
        if constexpr (requires { observer.events_of_this_rank(); })
            if (recorder* const one = observer.events_of_this_rank(); one != nullptr) {
                if (found != nullptr)
                    core::fail("fit() was given two timelines, and records for one",
                               "name one of them; its third argument draws a picture of the same steps");
                found = one;
            }
    };
    (look(observers), ...);
    return found;
}
/// Tells a recorder of a trainer's work as long as it lives.
template <class Source>
struct recording {
    Source& source;  ///< a trainer's engine
    /// `to` may be null.
    recording(Source& from, recorder* to) : source{from} { source.record(to); }
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;
    ~recording() { source.record(nullptr); }
};

/// Whether an observer has a member, in a form in which it is called.
template <class Observer, class Trainer>
inline constexpr bool hears_begin = requires(Observer& o, const comm::group& ranks) {
    o.on_begin(ranks);
}
|| requires(Observer& o, const run_begin& from) { o.on_begin(from); }
|| requires(Observer& o, Trainer& t, const run_begin& from) { o.on_begin(t, from); }
|| requires(Observer& o) { o.on_begin(); };
template <class Observer, class Trainer>
inline constexpr bool hears_steps = requires(Observer& o, Trainer& t, step_event& e) {
    o.on_step(t, e);
}
|| requires(Observer& o, step_event& e) { o.on_step(e); };
template <class Observer, class Trainer>
inline constexpr bool hears_epochs = requires(Observer& o, Trainer& t, epoch_event& e) {
    o.on_epoch(t, e);
}
|| requires(Observer& o, epoch_event& e) { o.on_epoch(e); };
template <class Observer, class Trainer>
inline constexpr bool hears_stop = requires(Observer& o, Trainer& t, const totals& r) {
    o.on_stop(t, r);
}
|| requires(Observer& o, const totals& r) { o.on_stop(r); };
template <class Observer, class Trainer>
inline constexpr bool hears_end = requires(Observer& o, Trainer& t, const totals& r) {
    o.on_end(t, r);
}
|| requires(Observer& o, const totals& r) { o.on_end(r); };

/// Whether it has one member of that name, whatever its arguments. Not known of templates and overloads.
template <class Observer>
inline constexpr bool names_begin = requires {
    &Observer::on_begin;
};
template <class Observer>
inline constexpr bool names_steps = requires {
    &Observer::on_step;
};
template <class Observer>
inline constexpr bool names_epochs = requires {
    &Observer::on_epoch;
};
template <class Observer>
inline constexpr bool names_stop = requires {
    &Observer::on_stop;
};
template <class Observer>
inline constexpr bool names_saves_at_stop = requires {
    &Observer::saves_at_stop;
};
template <class Observer>
inline constexpr bool names_end = requires {
    &Observer::on_end;
};

/// An observer that hears of nothing is a mistake, and so is a member that would never be called.
template <class Observer, class Trainer>
consteval void check_observer() {
    constexpr bool begins = hears_begin<Observer, Trainer>, steps = hears_steps<Observer, Trainer>;
    constexpr bool epochs = hears_epochs<Observer, Trainer>, ends = hears_end<Observer, Trainer>;
    constexpr bool stops = hears_stop<Observer, Trainer>;
    constexpr bool answers = requires(const Observer& o) {
        { o.saves_at_stop() } -> std::same_as<bool>;
    };
    constexpr bool has_name = names_begin<Observer> || names_steps<Observer> || names_epochs<Observer> ||
                              names_stop<Observer> || names_end<Observer>;
    static_assert(begins || steps || epochs || stops || ends || has_name,
                  "lockstep: an observer has on_begin(), on_step(event), on_epoch(event), on_stop(report) or "
                  "on_end(report)");
    static_assert(begins || !names_begin<Observer>,
                  "lockstep: on_begin of an observer takes nothing, a const comm::group&, a const run_begin&, or the "
                  "trainer and a const run_begin&; of a const observer it is const");
    static_assert(steps || !names_steps<Observer>,
                  "lockstep: on_step of an observer takes a step_event&, or the trainer and a step_event&; of a const "
                  "observer it is const");
    static_assert(epochs || !names_epochs<Observer>,
                  "lockstep: on_epoch of an observer takes an epoch_event&, or the trainer and an epoch_event&; of a "
                  "const observer it is const");
    static_assert(answers || !names_saves_at_stop<Observer>,
                  "lockstep: saves_at_stop() of an observer is const, takes nothing and returns a bool");
    static_assert(stops || !names_stop<Observer>,
                  "lockstep: on_stop of an observer takes a const totals&, or the trainer and a const totals&; of a "
                  "const observer it is const");
    static_assert(ends || !names_end<Observer>,
                  "lockstep: on_end of an observer takes a const totals&, or the trainer and a const totals&; of a "
                  "const observer it is const");
}

/// `static constexpr bool needs_validation = true`: on_epoch() looks at epoch_event::test.
template <class Observer>
inline constexpr bool needs_validation = requires {
    requires Observer::needs_validation;
};
/// Whether on_epoch() takes an event that it cannot change.
template <class Observer, class Trainer>
inline constexpr bool hears_const_epochs = requires(Observer& o, Trainer& t, const epoch_event& e) {
    o.on_epoch(t, e);
}
|| requires(Observer& o, const epoch_event& e) { o.on_epoch(e); };
/// Whether it is one function, or a template of the trainer's type alone: then the types of its arguments say all.
template <class Observer, class Trainer>
inline constexpr bool has_plain_epochs = requires {
    requires std::is_member_function_pointer_v<decltype(&Observer::on_epoch)>;
}
|| requires { &Observer::template on_epoch<Trainer>; };
/// Whether an observer may set epoch_event::test. Other templates may: their bodies are not looked at.
template <class Observer, class Trainer>
[[nodiscard]] consteval bool may_validate() {
    if constexpr (!hears_epochs<Observer, Trainer>)
        return false;
    else if constexpr (has_plain_epochs<Observer, Trainer>)
        return !hears_const_epochs<Observer, Trainer>;
    return true;
}

/// Whether each one that needs a validation hears of an epoch after one.
template <class Trainer, class... Observers>
[[nodiscard]] consteval bool validates_in_order() {
    bool out = true;
    if constexpr ((needs_validation<Observers> || ...)) {
        bool is_validated = false;
        const auto hear = [&]<class Observer>(std::type_identity<Observer>) {
            out = out && (is_validated || !needs_validation<Observer>);
            is_validated = is_validated || may_validate<Observer, Trainer>();
        };
        (static_cast<void>(is_told_last<Observers> || (hear(std::type_identity<Observers>{}), true)), ...);
        (static_cast<void>(is_told_last<Observers> && (hear(std::type_identity<Observers>{}), true)), ...);
    }
    return out;
}

/// The observers of a fit(), with one sentence for each mistake.
template <class Trainer, class... Observers>
consteval void check_observers() {
    (check_observer<Observers, Trainer>(), ...);
    static_assert(validates_in_order<Trainer, Observers...>(),
                  "lockstep: an observer that needs a validation, such as early_stopping, has none: name "
                  "validate{set} before it in fit()");
}

/// What the observers of a fit() write, before any of them does: no two of their files are one. An observer that writes
/// files has `files()`, a range of their paths; empty paths are left out. On rank 0, which writes.
template <class... Observers>
[[gnu::cold]] void require_different_outputs(const comm::group& ranks, const Observers&... observers) {
    std::vector<std::string> paths;
    [[maybe_unused]] const auto add = [&](const auto& observer) {
        if constexpr (requires { observer.files(); })
            for (const auto& path : observer.files()) paths.emplace_back(path);
    };
    (add(observers), ...);
    if (ranks.rank() == 0) core::require_different_outputs(paths);
}

/// What an observer says to an event: nothing, or false to end the run.
template <class F>
[[nodiscard]] bool answer(const F& call) {
    using said = decltype(call());
    static_assert(
        std::is_void_v<said> || std::is_same_v<said, bool>,
        "lockstep: on_begin, on_step and on_epoch of an observer return nothing, or a bool: false ends the run");
    if constexpr (std::is_same_v<said, bool>) return call();
    call();
    return true;
}
/// Before the first step of a fit(): what cannot work should fail now.
template <class Observer, class Trainer>
[[nodiscard]] bool tell_begin(Observer& observer, const comm::group& ranks, Trainer& trainer, const run_begin& from) {
    if (ranks.rank() != 0 && !on_every_rank<Observer>) return true;
    if constexpr (requires { observer.on_begin(trainer, from); })
        return answer([&] { return observer.on_begin(trainer, from); });
    else if constexpr (requires { observer.on_begin(from); })
        return answer([&] { return observer.on_begin(from); });
    else if constexpr (requires { observer.on_begin(ranks); })
        return answer([&] { return observer.on_begin(ranks); });
    else if constexpr (requires { observer.on_begin(); })
        return answer([&] { return observer.on_begin(); });
    return true;
}
/// Calls on_step or on_epoch with the trainer, if the observer takes it, or without.
template <class Observer, class Trainer>
[[nodiscard]] bool tell_step(Observer& observer, std::size_t rank, Trainer& trainer, step_event& event) {
    if (rank != 0 && !on_every_rank<Observer>) return true;
    if constexpr (requires { observer.on_step(trainer, event); })
        return answer([&] { return observer.on_step(trainer, event); });
    else if constexpr (requires { observer.on_step(event); })
        return answer([&] { return observer.on_step(event); });
    return true;
}
template <class Observer, class Trainer>
[[nodiscard]] bool tell_epoch(Observer& observer, std::size_t rank, Trainer& trainer, epoch_event& event) {
    if (rank != 0 && !on_every_rank<Observer>) return true;
    if constexpr (requires { observer.on_epoch(trainer, event); })
        return answer([&] { return observer.on_epoch(trainer, event); });
    else if constexpr (requires { observer.on_epoch(event); })
        return answer([&] { return observer.on_epoch(event); });
    return true;
}
/// Whether an observer may end the run before its first step, at a step, or at the end of an epoch: all ranks then ask
/// each other.
template <class Observer, class Trainer>
inline constexpr bool ends_at_begin = requires(Observer& o, Trainer& t, const run_begin& from) {
    { o.on_begin(t, from) } -> std::same_as<bool>;
}
|| requires(Observer& o, const run_begin& from) {
    { o.on_begin(from) } -> std::same_as<bool>;
}
|| requires(Observer& o, const comm::group& ranks) {
    { o.on_begin(ranks) } -> std::same_as<bool>;
}
|| requires(Observer& o) {
    { o.on_begin() } -> std::same_as<bool>;
};
template <class Observer, class Trainer>
inline constexpr bool ends_at_step = requires(Observer& o, Trainer& t, step_event& e) {
    { o.on_step(t, e) } -> std::same_as<bool>;
}
|| requires(Observer& o, step_event& e) {
    { o.on_step(e) } -> std::same_as<bool>;
};
template <class Observer, class Trainer>
inline constexpr bool ends_at_epoch = requires(Observer& o, Trainer& t, epoch_event& e) {
    { o.on_epoch(t, e) } -> std::same_as<bool>;
}
|| requires(Observer& o, epoch_event& e) {
    { o.on_epoch(e) } -> std::same_as<bool>;
};
/// Whether a signal after the last step is to end a fit(): an observer has on_stop(), and no `saves_at_stop()` that
/// says false. As it hears of it: on rank 0 only, or on all.
template <class Trainer, class Observer>
[[nodiscard]] bool saves_at_stop([[maybe_unused]] const std::remove_const_t<Observer>& observer, std::size_t rank) {
    if (rank != 0 && !on_every_rank<Observer>) return false;
    if constexpr (!hears_stop<Observer, Trainer>)
        return false;
    else if constexpr (requires { observer.saves_at_stop(); })
        return observer.saves_at_stop();
    return true;
}
/// Where a signal ends a fit(), before its end.
template <class Observer, class Trainer>
void tell_stop(Observer& observer, std::size_t rank, Trainer& trainer, const totals& event) {
    if (rank != 0 && !on_every_rank<Observer>) return;
    if constexpr (requires { observer.on_stop(trainer, event); })
        observer.on_stop(trainer, event);
    else if constexpr (requires { observer.on_stop(event); })
        observer.on_stop(event);
}
template <class Observer, class Trainer>
void tell_end(Observer& observer, std::size_t rank, Trainer& trainer, const totals& event) {
    if (rank != 0 && !on_every_rank<Observer>) return;
    if constexpr (requires { observer.on_end(trainer, event); })
        observer.on_end(trainer, event);
    else if constexpr (requires { observer.on_end(event); })
        observer.on_end(event);
}

/// Evaluates a data set after each epoch, on all ranks; the result is in epoch_event::test for the observers named
/// after it. `validate{set, top_k{.k = 5}}`: with further metrics, also as a metrics::list of them. A data set with a
/// name is read where it is, and must outlive this; a temporary one is kept. `Held`: a reference, or the data set.
/// Cost: a forward pass over the set, which all ranks share.
template <class Held, class... Metrics>
struct validate {
    static_assert((metrics::is_one_number<Metrics> && ...),
                  "lockstep: validate keeps metrics that are one number each; take trainer.evaluate() for others");
    static constexpr bool on_every_rank = true;  ///< evaluate() is collective
    Held set;                                    ///< samples of the network's input and label
    metrics::list<Metrics...> also;              ///< of one number each

    /// `validate{set, metrics...}`
    explicit validate(std::type_identity_t<Held> samples, const Metrics&... metrics)
        : set(static_cast<Held&&>(samples)), also{metrics...} {}
    /// `validate{set, metrics::list{..}}`, as evaluate() takes them.
    explicit validate(std::type_identity_t<Held> samples, const metrics::list<Metrics...>& listed)
        : set(static_cast<Held&&>(samples)), also{listed} {}

    /// Evaluates the set. Collective.
    template <class Trainer>
    void on_epoch(Trainer& trainer, epoch_event& event) {
        event.test = trainer.evaluate(set, also);
    }
};
template <class Dataset, class... Metrics>
validate(const Dataset&, const Metrics&...) -> validate<const Dataset&, Metrics...>;
template <class Dataset, class... Metrics>
    requires(!std::is_lvalue_reference_v<Dataset>)
validate(Dataset&&, const Metrics&...)
->validate<std::remove_const_t<Dataset>, Metrics...>;
template <class Dataset, class... Metrics>
validate(const Dataset&, const metrics::list<Metrics...>&) -> validate<const Dataset&, Metrics...>;
template <class Dataset, class... Metrics>
    requires(!std::is_lvalue_reference_v<Dataset>)
validate(Dataset&&, const metrics::list<Metrics...>&)
->validate<std::remove_const_t<Dataset>, Metrics...>;

/// Whether an observer evaluates a data set: its members `set` and `also`.
template <class Observer>
inline constexpr bool is_validation = false;
template <class Held, class... Metrics>
inline constexpr bool is_validation<validate<Held, Metrics...>> = true;

/// Whether an observer may write this number into epoch_event::test: validate says what it measures.
template <class Trainer, class Observer>
[[nodiscard]] constexpr bool may_measure(const Observer& /*observer*/, std::string_view /*name*/) noexcept {
    return may_validate<Observer, Trainer>();
}
template <class Trainer, class Held, class... Metrics>
[[nodiscard]] constexpr bool may_measure(const validate<Held, Metrics...>& /*observer*/,
                                         std::string_view name) noexcept {
    return name == "loss" || name == "accuracy" || ((name == Metrics::name) || ...);
}

}  // namespace lockstep::report

namespace lockstep {
using report::validate;
}  // namespace lockstep
