// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An asynchronous run as data: which learner's gradient arrives when, and of which weights it is.
// Tested by tests/unit/sync/arrivals.cpp.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::sync {

/// A gradient reaches the server.
struct arrival {
    /// That of its place in the list.
    static constexpr std::uint64_t own_minibatch = std::numeric_limits<std::uint64_t>::max();

    std::uint64_t learner = 0;  ///< who made it
    std::uint64_t version = 0;  ///< of which weights: those after so many updates
    double time = 0;            ///< in the time of a gradient; of sync::parameter_server, seconds since its round began
    std::uint64_t minibatch = own_minibatch;  ///< of which minibatch of the run, from 0, where one makes an update
    /// Of that of place `place` in its list.
    [[nodiscard]] bool has_minibatch_of(std::uint64_t place) const noexcept {
        return minibatch == own_minibatch || minibatch == place;
    }
    friend bool operator==(const arrival&, const arrival&) = default;
};

/// The gradients of a run in the order in which they reach the server. As text a line for each: learner, version, time,
/// and the minibatch where it is another one than that of its place. A line that begins with '#' is a comment.
struct arrival_list {
    std::vector<arrival> entries{};
    friend bool operator==(const arrival_list&, const arrival_list&) = default;

    [[nodiscard, gnu::cold]] std::string text() const;
    /// Of learners, versions and minibatches.
    [[nodiscard, gnu::cold]] std::uint64_t hash() const;
    /// Throws core::error, with the name, for what is no such text. Lines may end with a carriage return.
    [[nodiscard, gnu::cold]] static arrival_list parse(std::string_view text,
                                                       std::string_view name = "a list of arrivals");
    /// parse() of a file.
    [[nodiscard, gnu::cold]] static arrival_list read(const std::string& path);
    [[gnu::cold]] void write(const std::string& path) const;
    /// Throws core::error where a gradient, of which `per_update` make an update, is of weights that there are not yet,
    /// or of older ones than the server had when its learner sent the gradient before, or names a minibatch where
    /// several make an update.
    [[gnu::cold]] void check(std::size_t per_update) const;
    /// How many gradients there are of each staleness: updates between the weights that a gradient is of and those that
    /// it changes. Whole updates only.
    [[nodiscard, gnu::cold]] std::vector<std::uint64_t> staleness(std::size_t per_update) const;
};

/// Learners that compute gradients one after the other, each in a time of its own, drawn from the seed: a pure function
/// of these numbers. A learner sends a gradient, reads the newest weights, and begins the next one at once.
struct arrival_model {
    std::size_t learners = 1;
    /// Stale-synchronous: no learner begins a gradient while it has sent more than so many more than the slowest.
    std::optional<std::uint64_t> bound{};
    double spread = 0.2;  ///< standard deviation of the logarithm of the time that a gradient takes; its median is 1
    double slowest = 1;   ///< how much longer learner 0 takes

    /// Throws core::error for more than 2^20 learners, a spread that is not in 0 .. 10 and a factor not in 1e-6 .. 1e6.
    [[gnu::cold]] void check() const;
};

/// The arrivals of one update after the other, from a model or from a list. What it holds does not grow with the run.
class arrival_source {
public:
    /// No gradient is under way.
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    /// An update is made of `per_update` gradients.
    [[gnu::cold]] arrival_source(const arrival_model& model, std::size_t per_update, std::uint64_t seed);
    /// Checks the list.
    [[gnu::cold]] arrival_source(arrival_list list, std::size_t per_update);

    [[nodiscard]] std::size_t learners() const noexcept { return learners_.size(); }
    /// The gradients that make update number `update`, from 0, in the order of their arrival. Throws core::error after
    /// the end of a list. Cost: of a model each update costs about 0.2 us a gradient, and those that are left out are
    /// computed as well, from the first one where the number is smaller than before: a run that resumes after a million
    /// updates of 64 gradients waits some 12 s. A list is read where it is asked for.
    std::span<const arrival> of(std::uint64_t update);
    /// After of(update), before the weights that it makes are there: the weights that a learner is at work on, or none.
    [[nodiscard]] std::uint64_t version_of(std::size_t learner) const noexcept { return learners_[learner].version; }
    /// Of which minibatch the gradients of this update are.
    [[nodiscard]] std::uint64_t minibatch_of(std::uint64_t update) const noexcept {
        if (!list_ || per_update_ != 1 || update >= list_->entries.size()) return update;
        const arrival& one = list_->entries[update];
        return one.has_minibatch_of(update) ? update : one.minibatch;
    }

private:
    struct learner_state {
        std::uint64_t sent = 0;
        std::uint64_t version = 0;
        std::vector<std::size_t> gradients{};  // of a list: numbers of its arrivals
    };
    struct end_of_gradient {
        double time;
        std::size_t learner;
        friend bool operator>(const end_of_gradient& a, const end_of_gradient& b) noexcept {
            return a.time != b.time ? a.time > b.time : a.learner > b.learner;
        }
    };
    void begin();
    void read_list(std::uint64_t update);
    void draw();
    void start(std::size_t learner, std::uint64_t version, double now);
    /// Whether the bound lets it begin a gradient.
    [[nodiscard]] bool may_start(std::size_t learner) const noexcept {
        return !model_.bound || learners_[learner].sent - least_ <= *model_.bound;
    }
    void count_slowest();

    arrival_model model_{};
    std::optional<arrival_list> list_{};
    std::size_t per_update_;
    std::uint64_t seed_ = 0;
    std::vector<learner_state> learners_;
    std::vector<arrival> now_;
    std::uint64_t updates_ = 0;                 // that of() has given
    std::vector<end_of_gradient> under_way_{};  // a heap, the next one first
    std::vector<std::size_t> waiting_{};        // learners, for the slowest
    std::uint64_t least_ = 0;                   // that a learner has sent
    std::size_t slowest_ = 0;                   // how many have sent no more
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string arrival_list::text() const {
    std::string out;
    std::uint64_t place = 0;
    for (const arrival& one : entries) {
        out += core::text(one.learner, " ", one.version, " ", one.time);
        if (!one.has_minibatch_of(place)) out += core::text(" ", one.minibatch);
        out += "\n";
        ++place;
    }
    return out;
}

LOCKSTEP_FUNCTION std::uint64_t arrival_list::hash() const {
    std::uint64_t out = 0, place = 0;
    for (const arrival& one : entries) {
        out = core::hash(core::text(one.learner, " ", one.version), out);
        if (!one.has_minibatch_of(place)) out = core::mix(out + one.minibatch);
        ++place;
    }
    return out;
}

LOCKSTEP_FUNCTION arrival_list arrival_list::parse(std::string_view text, std::string_view name) {
    const auto take = [](std::string_view& words) {
        const std::size_t end = std::min(words.find(' '), words.size());
        const std::string_view word = words.substr(0, end);
        words.remove_prefix(std::min(end + 1, words.size()));
        return word;
    };
    const auto is_natural = [](std::string_view word, std::uint64_t& number) {
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
        return problem == std::errc{} && end == word.data() + word.size();
    };
    arrival_list out;
    for (std::size_t line = 1; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view words = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (words.ends_with('\r')) words.remove_suffix(1);
        if (words.empty() || words.front() == '#') continue;
        const std::string_view whole = words, learner = take(words), version = take(words), time = take(words);
        arrival one;
        if (!is_natural(learner, one.learner) || !is_natural(version, one.version) ||
            !core::read_number(time, one.time) || !std::isfinite(one.time) ||
            (whole.ends_with(' ') || (!words.empty() && !is_natural(words, one.minibatch))))
            core::fail(core::text("line ", line, " of ", name, " is \"", core::excerpt(whole),
                                  "\", no learner, version and time"),
                       "write three numbers with a space between them, such as 3 17 4.5, and where it is not that of "
                       "its place the minibatch");
        if (one.minibatch == out.entries.size()) one.minibatch = arrival::own_minibatch;
        out.entries.push_back(one);
    }
    return out;
}

LOCKSTEP_FUNCTION arrival_list arrival_list::read(const std::string& path) {
    core::input_file from{path};
    std::string all(from.size(), '\0');
    all.resize(from.read(std::as_writable_bytes(std::span{all})));
    return parse(all, path);
}

LOCKSTEP_FUNCTION void arrival_list::write(const std::string& path) const {
    core::output_file to;
    to.open(path);
    to.write("# learner, version, time, minibatch where it is another one than that of its place\n" + text());
    to.close();
}

namespace detail {

inline constexpr std::uint64_t most_learners = 1U << 20U;

[[gnu::cold]] LOCKSTEP_FUNCTION void check_per_update(std::size_t gradients) {
    if (gradients == 0) core::fail("an update is made of 0 gradients", "give the workers of the trainer, at least 1");
}

}  // namespace detail

LOCKSTEP_FUNCTION void arrival_model::check() const {
    if (learners == 0 || learners > detail::most_learners)
        core::fail(core::text("an asynchronous run has ", learners, " learners"),
                   core::text("use 1 to ", detail::most_learners));
    if (!(spread >= 0 && spread <= 10))
        core::fail(core::text("an asynchronous run has spread = ", spread), "use a spread from 0 to 10");
    if (!(slowest >= 1e-6 && slowest <= 1e6))
        core::fail(core::text("an asynchronous run has slowest = ", slowest), "use a factor from 1e-6 to 1e6");
}

LOCKSTEP_FUNCTION void arrival_list::check(std::size_t per_update) const {
    using detail::most_learners;
    detail::check_per_update(per_update);
    std::vector<std::uint64_t> least;
    for (std::size_t number = 0; number < entries.size(); ++number) {
        const arrival& one = entries[number];
        const auto refuse = [&](const auto&... what) {
            core::fail(core::text("a list of arrivals has gradient ", number, " of learner ", one.learner, what...),
                       "write learner, version and time of each gradient in the order of arrival, with workers = "
                       "gradients in an update");
        };
        if (one.learner >= most_learners) refuse(", where numbers below ", most_learners, " are possible");
        if (one.learner >= least.size()) least.resize(one.learner + 1);
        const std::uint64_t newest = number / per_update;
        if (one.version > newest) refuse(" with version ", one.version, ", where the newest is ", newest);
        if (one.version < least[one.learner])
            refuse(" with version ", one.version, ", older than ", least[one.learner],
                   ", the newest when it sent the one before");
        if (per_update != 1 && !one.has_minibatch_of(number))
            refuse(" of minibatch ", one.minibatch, ", where ", per_update,
                   " of them make an update, each with its part of a minibatch");
        least[one.learner] = newest;
    }
}

LOCKSTEP_FUNCTION std::vector<std::uint64_t> arrival_list::staleness(std::size_t per_update) const {
    check(per_update);
    std::vector<std::uint64_t> out;
    for (std::size_t number = 0; number < entries.size() / per_update * per_update; ++number) {
        const std::size_t stale = number / per_update - entries[number].version;
        if (stale >= out.size()) out.resize(stale + 1);
        ++out[stale];
    }
    return out;
}

LOCKSTEP_FUNCTION arrival_source::arrival_source(const arrival_model& model, std::size_t per_update, std::uint64_t seed)
    : model_{model}, per_update_{per_update}, seed_{seed} {
    model.check();
    detail::check_per_update(per_update);
    learners_.resize(model.learners);
    now_.reserve(per_update);
    under_way_.reserve(model.learners);
    waiting_.reserve(model.learners);
    begin();
}

LOCKSTEP_FUNCTION arrival_source::arrival_source(arrival_list list, std::size_t per_update)
    : list_{std::move(list)}, per_update_{per_update} {
    list_->check(per_update);
    for (std::size_t number = 0; number < list_->entries.size(); ++number) {
        const std::size_t learner = list_->entries[number].learner;
        if (learner >= learners_.size()) learners_.resize(learner + 1);
        learners_[learner].gradients.push_back(number);
    }
    now_.reserve(per_update);
}

LOCKSTEP_FUNCTION std::span<const arrival> arrival_source::of(std::uint64_t update) {
    if (list_) {
        read_list(update);
        return now_;
    }
    if (update + 1 < updates_) begin();
    while (updates_ < update + 1) draw();
    return now_;
}

LOCKSTEP_FUNCTION void arrival_source::begin() {
    updates_ = 0;
    under_way_.clear();
    waiting_.clear();
    least_ = 0;
    slowest_ = learners_.size();
    for (std::size_t one = 0; one < learners_.size(); ++one) {
        learners_[one].sent = 0;
        start(one, 0, 0);
    }
}

LOCKSTEP_FUNCTION void arrival_source::start(std::size_t learner, std::uint64_t version, double now) {
    learner_state& one = learners_[learner];
    const core::random_stream random{seed_, core::purpose::arrivals, static_cast<std::uint32_t>(learner)};
    one.version = version;
    const double takes = (learner == 0 ? model_.slowest : 1) * std::exp(model_.spread * random.normal(one.sent));
    under_way_.push_back({now + takes, learner});
    std::ranges::push_heap(under_way_, std::greater{});
}

LOCKSTEP_FUNCTION void arrival_source::read_list(std::uint64_t update) {
    const std::size_t first = update * per_update_, last = first + per_update_;
    if (update >= list_->entries.size() / per_update_)
        core::fail(core::text("the list of arrivals has ", list_->entries.size(), " gradients, enough for ",
                              list_->entries.size() / per_update_, " updates of ", per_update_),
                   "end the run there, or give a longer list");
    now_.assign(list_->entries.begin() + static_cast<std::ptrdiff_t>(first),
                list_->entries.begin() + static_cast<std::ptrdiff_t>(last));
    for (learner_state& one : learners_) {
        const auto next = std::ranges::lower_bound(one.gradients, last);
        one.version = next == one.gradients.end() ? none : list_->entries[*next].version;
        if (one.version > update) one.version = none;  // it will read them
    }
}

LOCKSTEP_FUNCTION void arrival_source::draw() {
    now_.clear();
    while (now_.size() < per_update_) {
        std::ranges::pop_heap(under_way_, std::greater{});
        const auto [time, learner] = under_way_.back();
        under_way_.pop_back();
        learner_state& one = learners_[learner];
        now_.push_back({learner, one.version, time});
        one.version = none;
        waiting_.push_back(learner);
        if (one.sent++ == least_ && --slowest_ == 0) count_slowest();
        const std::uint64_t newest = updates_ + (now_.size() == per_update_ ? 1 : 0);
        const auto rest = std::ranges::remove_if(waiting_, [&](std::size_t waits) {
            if (!may_start(waits)) return false;
            start(waits, newest, time);
            return true;
        });
        waiting_.erase(rest.begin(), rest.end());
    }
    ++updates_;
}

LOCKSTEP_FUNCTION void arrival_source::count_slowest() {
    least_ = std::ranges::min(learners_, {}, &learner_state::sent).sent;
    slowest_ = static_cast<std::size_t>(std::ranges::count(learners_, least_, &learner_state::sent));
}

#endif

}  // namespace lockstep::sync
