// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An asynchronous run as data: which learner's gradient arrives when, and of which weights it is.
// Tested by tests/unit/sync/arrivals.cpp.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
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
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::sync {

/// A gradient reaches the server.
struct arrival {
    std::uint64_t learner = 0;  ///< who made it
    std::uint64_t version = 0;  ///< of which weights: those after so many updates
    double time = 0;            ///< in the time of a gradient; decides nothing
    friend bool operator==(const arrival&, const arrival&) = default;
};

/// The gradients of a run in the order in which they reach the server. As text a line for each: learner, version, time.
/// A line that begins with '#' is a comment.
struct arrival_list {
    std::vector<arrival> entries{};
    friend bool operator==(const arrival_list&, const arrival_list&) = default;

    [[nodiscard, gnu::cold]] std::string text() const;
    /// Throws core::error, with the name, for what is no such text.
    [[nodiscard, gnu::cold]] static arrival_list parse(std::string_view text,
                                                       std::string_view name = "a list of arrivals");
    /// parse() of a file.
    [[nodiscard, gnu::cold]] static arrival_list read(const std::string& path);
    [[gnu::cold]] void write(const std::string& path) const;
    /// Throws core::error where a gradient, of which `per_update` make an update, is of weights that there are not yet,
    /// or of older ones than the server had when its learner sent the gradient before.
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
    /// The gradients that make update number `update`, from 0, in the order of their arrival. Ascending numbers cost
    /// per_update x learners() operations each; a smaller one than before begins anew. Throws core::error after the end
    /// of a list.
    std::span<const arrival> of(std::uint64_t update);
    /// After of(update), before the weights that it makes are there: the weights that a learner is at work on, or none.
    [[nodiscard]] std::uint64_t version_of(std::size_t learner) const noexcept { return learners_[learner].version; }

private:
    struct learner_state {
        std::uint64_t sent = 0;
        std::uint64_t version = 0;
        double ends = 0;
        std::vector<std::size_t> gradients{};  // of a list: numbers of its arrivals
    };
    void begin();
    void advance();
    void start(std::size_t learner, std::uint64_t version, double now);

    arrival_model model_{};
    std::optional<arrival_list> list_{};
    std::size_t per_update_;
    std::uint64_t seed_ = 0;
    std::vector<learner_state> learners_;
    std::vector<arrival> now_;
    std::uint64_t updates_ = 0;  // that of() has given
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string arrival_list::text() const {
    std::string out;
    for (const arrival& one : entries) out += core::text(one.learner, " ", one.version, " ", one.time, "\n");
    return out;
}

LOCKSTEP_FUNCTION arrival_list arrival_list::parse(std::string_view text, std::string_view name) {
    // The number that the words begin with, and the space after it.
    const auto take = [](std::string_view& words, auto& number) {
        const auto [end, problem] = std::from_chars(words.data(), words.data() + words.size(), number);
        if (problem != std::errc{}) return false;
        words.remove_prefix(static_cast<std::size_t>(end - words.data()));
        if (!words.empty() && words.front() == ' ') words.remove_prefix(1);
        return true;
    };
    arrival_list out;
    for (std::size_t line = 1; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view words = text.substr(0, end);
        const std::string_view whole = words;
        text.remove_prefix(std::min(end + 1, text.size()));
        if (words.empty() || words.front() == '#') continue;
        arrival one;
        if (!take(words, one.learner) || !take(words, one.version) || !take(words, one.time) || !words.empty() ||
            !std::isfinite(one.time))
            core::fail(core::text("line ", line, " of ", name, " is \"", core::excerpt(whole),
                                  "\", no learner, version and time"),
                       "write three numbers with a space between them, such as 3 17 4.5");
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
    to.write("# learner, version, time\n" + text());
    to.close();
}

LOCKSTEP_FUNCTION void arrival_list::check(std::size_t per_update) const {
    constexpr std::uint64_t most_learners = 1U << 20U;
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
    : model_{model}, per_update_{per_update}, seed_{seed}, learners_(model.learners) {
    now_.reserve(per_update);
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
    begin();
}

LOCKSTEP_FUNCTION std::span<const arrival> arrival_source::of(std::uint64_t update) {
    if (update + 1 < updates_) begin();
    while (updates_ < update + 1) advance();
    return now_;
}

LOCKSTEP_FUNCTION void arrival_source::begin() {
    updates_ = 0;
    for (std::size_t one = 0; one < learners_.size(); ++one) {
        learners_[one].sent = 0;
        if (!list_) start(one, 0, 0);
    }
}

LOCKSTEP_FUNCTION void arrival_source::start(std::size_t learner, std::uint64_t version, double now) {
    learner_state& one = learners_[learner];
    const core::random_stream random{seed_, core::purpose::arrivals, static_cast<std::uint32_t>(learner)};
    one.version = version;
    one.ends = now + (learner == 0 ? model_.slowest : 1) * std::exp(model_.spread * random.normal(one.sent));
}

LOCKSTEP_FUNCTION void arrival_source::advance() {
    now_.clear();
    if (list_) {
        const std::size_t first = updates_ * per_update_, last = first + per_update_;
        if (last > list_->entries.size())
            core::fail(core::text("the list of arrivals has ", list_->entries.size(), " gradients, enough for ",
                                  list_->entries.size() / per_update_, " updates of ", per_update_),
                       "end the run there, or give a longer list");
        now_.assign(list_->entries.begin() + static_cast<std::ptrdiff_t>(first),
                    list_->entries.begin() + static_cast<std::ptrdiff_t>(last));
        for (learner_state& one : learners_) {
            const auto next = std::ranges::lower_bound(one.gradients, last);
            const std::uint64_t version = next == one.gradients.end() ? none : list_->entries[*next].version;
            one.version = version > updates_ && version != none ? none : version;  // which it will read
        }
        ++updates_;
        return;
    }
    while (now_.size() < per_update_) {
        const auto first = std::ranges::min_element(
            learners_, [](const learner_state& a, const learner_state& b) { return a.ends < b.ends; });
        const auto learner = static_cast<std::size_t>(first - learners_.begin());
        const double time = first->ends;
        now_.push_back({learner, first->version, time});
        ++first->sent;
        first->version = none;
        first->ends = std::numeric_limits<double>::infinity();
        const std::uint64_t newest = updates_ + (now_.size() == per_update_ ? 1 : 0);
        const std::uint64_t least = std::ranges::min(learners_, {}, &learner_state::sent).sent;
        for (std::size_t one = 0; one < learners_.size(); ++one)
            if (learners_[one].version == none && (!model_.bound || learners_[one].sent - least <= *model_.bound))
                start(one, newest, time);
    }
    ++updates_;
}

#endif

}  // namespace lockstep::sync
