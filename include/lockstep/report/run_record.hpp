// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What is known of a run: collected while it goes on, or read from its log. Pages and comparisons are made of it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/json.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// One step, or several that were joined.
struct step_point {
    std::uint64_t step = 0;  ///< the last of them
    std::uint64_t epoch = 0;
    std::uint64_t samples = 0;  ///< of all of them
    double loss = 0;            ///< mean over these samples
    double rate = 0;            ///< learning rate of the last one
    double seconds = 0;         ///< since the run began, without validation
    std::uint64_t joined = 1;   ///< how many of them
    std::uint64_t skipped = 0;  ///< steps between the first and the last one that are not among them

    [[nodiscard]] std::uint64_t first() const noexcept { return step + 1 - std::min(step + 1, joined + skipped); }
    /// Takes in the point after this one.
    void join(const step_point& next) noexcept;
};

/// Steps of a run of any length in at most so many points: where they become too many, neighbours are joined. Memory
/// for all of them is taken at once.
class step_curve {
public:
    explicit step_curve(std::size_t most = 1024) : most_{std::max<std::size_t>(2, most)} { points_.reserve(most_); }

    void add(const step_point& point);
    /// The last point may stand for fewer steps than the others.
    [[nodiscard]] const std::vector<step_point>& points() const noexcept { return points_; }
    [[nodiscard]] std::uint64_t steps_of_a_point() const noexcept { return stride_; }

private:
    std::size_t most_;
    std::uint64_t stride_ = 1, in_last_ = 0;
    std::vector<step_point> points_;
};

struct epoch_point {
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;  ///< the last one
    double loss = 0;
    double seconds = 0;                                  ///< of the epoch, without validation
    std::vector<std::pair<std::string, double>> test{};  ///< loss, accuracy and further metrics

    /// Whether the metric was measured.
    [[nodiscard]] bool has(std::string_view name) const noexcept {
        return std::any_of(test.begin(), test.end(), [&](const auto& known) { return known.first == name; });
    }
    /// NaN where it was not.
    [[nodiscard]] double metric(std::string_view name) const noexcept {
        for (const auto& [known, value] : test)
            if (known == name) return value;
        return std::numeric_limits<double>::quiet_NaN();
    }
};

[[nodiscard, gnu::cold]] epoch_point point_of(const epoch_event& event, std::uint64_t step);

/// Lines of a recipe: names and values.
using recipe_lines = std::vector<std::pair<std::string, std::string>>;
/// Of a text with a line "name: value" for each.
[[nodiscard, gnu::cold]] recipe_lines recipe_lines_of(std::string_view text);

struct run_record {
    std::string name;
    std::size_t ranks = 0, threads = 0;  ///< 0: not known
    std::string host, command;
    recipe_lines recipe;
    std::vector<step_point> steps;
    std::vector<epoch_point> epochs;
    bool has_ended = false;
    std::uint64_t stop_signal = 0;  ///< what has ended it; 0: nothing has
    double samples_per_second = 0;  ///< at its end
    std::string weights_hash;       ///< empty: not known

    /// Names of the metrics of all epochs, in the order in which they came.
    [[nodiscard, gnu::cold]] std::vector<std::string> metrics() const;
    /// The last epoch that has measured it; null: none has.
    [[nodiscard, gnu::cold]] const epoch_point* last_with(std::string_view metric) const noexcept;
};

/// A run from the text of a json_log, or of a page of html_report. `source` names it in messages. An end of the text
/// inside of a line is that of a run that was killed: what stands before it counts. Throws core::error, with the line,
/// for anything else.
[[nodiscard, gnu::cold]] run_record parse_run(std::string_view text, const std::string& source);
/// The same from a file, after which the run is named.
[[nodiscard, gnu::cold]] run_record read_run(const std::string& path);

/// Of a run that is resumed: throws core::error where a file, "a log" or "a page", is none of this run.
[[noreturn, gnu::cold]] void fail_other_run(const std::string& path, std::string_view what, std::string_view why = "");
/// The same where its recipe has another seed. Other lines may be changed by name, or have another text in a later
/// version of the library.
[[gnu::cold]] void require_same_run(const recipe_lines& logged, const recipe_lines& now, const std::string& path,
                                    std::string_view what);

/// Marks of the events in a page.
inline constexpr std::string_view events_begin = "<script type=\"application/x-ndjson\" id=\"events\">\n",
                                  events_end = "</script>";
/// The lines of a json_log that parse_run() makes this record of again.
[[nodiscard, gnu::cold]] std::string to_lines(const run_record& run);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void step_point::join(const step_point& next) noexcept {
    const std::uint64_t gap = next.first() > step + 1 ? next.first() - step - 1 : 0;
    const auto before = static_cast<double>(samples), more = static_cast<double>(next.samples);
    const step_point all{.step = next.step,
                         .epoch = next.epoch,
                         .samples = samples + next.samples,
                         .loss = before + more > 0 ? (loss * before + next.loss * more) / (before + more) : next.loss,
                         .rate = next.rate,
                         .seconds = next.seconds,
                         .joined = joined + next.joined,
                         .skipped = skipped + gap + next.skipped};
    *this = all;
}

LOCKSTEP_FUNCTION void step_curve::add(const step_point& point) {
    if (in_last_ > 0) {
        points_.back().join(point);
        in_last_ = (in_last_ + 1) % stride_;
        return;
    }
    if (points_.size() == most_) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < points_.size(); i += 2, ++kept) {
            points_[kept] = points_[i];
            if (i + 1 < points_.size()) points_[kept].join(points_[i + 1]);
        }
        const bool is_half = points_.size() % 2 == 1;
        points_.resize(kept);
        in_last_ = is_half ? stride_ : 0;
        stride_ *= 2;
        return add(point);
    }
    points_.push_back(point);
    in_last_ = 1 % stride_;
}

LOCKSTEP_FUNCTION epoch_point point_of(const epoch_event& event, std::uint64_t step) {
    epoch_point out{.epoch = event.epoch, .step = step, .loss = event.loss, .seconds = event.seconds};
    if (!event.test) return out;
    out.test.emplace_back("loss", event.test->loss);
    if (event.test->accuracy) out.test.emplace_back("accuracy", *event.test->accuracy);
    for (const auto& metric : event.test->metrics) {
        const auto is_known = [&](const auto& known) { return known.first == metric.name; };
        if (std::none_of(out.test.begin(), out.test.end(), is_known))
            out.test.emplace_back(core::printable(metric.name), metric.value);
    }
    return out;
}

LOCKSTEP_FUNCTION recipe_lines recipe_lines_of(std::string_view text) {
    recipe_lines out;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        const std::size_t colon = std::min(line.find(": "), line.size());
        out.emplace_back(line.substr(0, colon), line.substr(std::min(colon + 2, line.size())));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return out;
}

LOCKSTEP_FUNCTION void fail_other_run(const std::string& path, std::string_view what, std::string_view why) {
    core::fail(core::text(path, " is not ", what, " of this run", why.empty() ? "" : ": ", why), "name another file");
}

LOCKSTEP_FUNCTION void require_same_run(const recipe_lines& logged, const recipe_lines& now, const std::string& path,
                                        std::string_view what) {
    const auto seed_in = [](const recipe_lines& of) {
        const auto found = std::ranges::find(of, "seed", [](const auto& line) { return line.first; });
        return found == of.end() ? std::string{} : core::printable(found->second);
    };
    const std::string there = seed_in(logged), here = seed_in(now);
    if (there.empty() || here.empty() || there == here) return;
    fail_other_run(path, what, core::text("seed is ", there, " there and ", here, " here"));
}

LOCKSTEP_FUNCTION std::vector<std::string> run_record::metrics() const {
    std::vector<std::string> out;
    for (const auto& epoch : epochs)
        for (const auto& [metric, value] : epoch.test)
            if (std::find(out.begin(), out.end(), metric) == out.end()) out.push_back(metric);
    return out;
}

LOCKSTEP_FUNCTION const epoch_point* run_record::last_with(std::string_view metric) const noexcept {
    const auto found =
        std::find_if(epochs.rbegin(), epochs.rend(), [&](const epoch_point& epoch) { return epoch.has(metric); });
    return found == epochs.rend() ? nullptr : &*found;
}

namespace detail {

/// What a line of a log has, whatever its event is.
struct log_line {
    std::string event, host, command, weights_hash;
    std::uint64_t step = 0, epoch = 0, samples = 0, ranks = 0, threads = 0, joined = 0, skipped = 0, stop_signal = 0;
    double loss = 0, rate = 0, seconds = 0, samples_per_second = 0;
    recipe_lines recipe;
    std::vector<std::pair<std::string, double>> test;
};

[[nodiscard]] LOCKSTEP_FUNCTION log_line parse_line(std::string_view text, const std::string& source) {
    using files::json_kind;
    log_line out;
    files::json_reader in{text, source};
    const auto real = [&] {
        if (in.kind() != json_kind::null) return in.real();
        in.null();
        return std::numeric_limits<double>::quiet_NaN();
    };
    in.object([&](const std::string& key) {
        if (key == "event")
            out.event = in.string();
        else if (key == "step")
            out.step = in.natural();
        else if (key == "epoch")
            out.epoch = in.natural();
        else if (key == "samples")
            out.samples = in.natural();
        else if (key == "joined")
            out.joined = in.natural();
        else if (key == "skipped")
            out.skipped = in.natural();
        else if (key == "ranks")
            out.ranks = in.natural();
        else if (key == "threads")
            out.threads = in.natural();
        else if (key == "stop_signal")
            out.stop_signal = in.natural();
        else if (key == "loss")
            out.loss = real();
        else if (key == "rate")
            out.rate = real();
        else if (key == "seconds")
            out.seconds = real();
        else if (key == "samples_per_second")
            out.samples_per_second = real();
        else if (key == "host")
            out.host = in.string();
        else if (key == "command")
            out.command = in.string();
        else if (key == "weights_hash")
            out.weights_hash = in.string();
        else if (key == "recipe" && in.kind() == json_kind::object)
            in.object([&](const std::string& name) { out.recipe.emplace_back(name, in.string()); });
        else if (key.starts_with("test_"))
            out.test.emplace_back(key.substr(5), real());
        else
            in.skip();
    });
    in.end();
    return out;
}

/// Pages of earlier versions do not say how many steps a point stands for. Where steps were joined, the first two were:
/// else each point is one step, also after a gap.
LOCKSTEP_FUNCTION void infer_joined(std::vector<step_point>& steps) noexcept {
    if (steps.size() > 2 && steps[1].step == steps[0].step + 1) return;
    for (std::size_t i = 1; i < steps.size(); ++i)
        if (steps[i].step > steps[i - 1].step) steps[i].joined = steps[i].step - steps[i - 1].step;
    if (steps.size() > 1) steps[0].joined = std::min(steps[0].step, steps[1].joined);
}

}  // namespace detail

LOCKSTEP_FUNCTION run_record parse_run(std::string_view text, const std::string& source) {
    const bool is_page = text.find(events_begin) != text.npos;
    if (const std::size_t at = text.find(events_begin); at != text.npos) {
        text.remove_prefix(at + events_begin.size());
        text = text.substr(0, text.find(events_end));
    }
    run_record out;
    out.name = source;
    std::uint64_t number = 0, events = 0;
    bool knows_joined = false;
    double before = 0, last = 0;  // seconds of earlier fits, and of this one
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        ++number;
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        const std::string place = core::text(source, ", line ", number);
        detail::log_line found;
        try {
            found = detail::parse_line(line, place);
        } catch (const core::error&) {
            if (events == 0)
                core::fail(core::text(source, " is no log of a run: line ", number, " is ", core::excerpt(line)),
                           "name a file that ls::json_log, ls::html_report or train --log has written");
            if (end == text.npos) break;  // killed in the middle of a line
            throw;
        }
        ++events;
        if (found.event == "begin") {
            out.ranks = found.ranks;
            out.threads = found.threads;
            out.host = found.host;
            out.command = found.command;
            out.recipe = found.recipe;
            out.has_ended = false;
            out.stop_signal = 0;
            out.samples_per_second = 0;
            out.weights_hash.clear();
            before += std::exchange(last, 0);
        } else if (found.event == "step") {
            if (found.seconds < last) before += last;
            last = found.seconds;
            out.steps.push_back({.step = found.step,
                                 .epoch = found.epoch,
                                 .samples = found.samples,
                                 .loss = found.loss,
                                 .rate = found.rate,
                                 .seconds = before + found.seconds,
                                 .joined = std::max<std::uint64_t>(found.joined, 1),
                                 .skipped = found.skipped});
            knows_joined = knows_joined || found.joined > 0;
        } else if (found.event == "epoch") {
            out.epochs.push_back({.epoch = found.epoch,
                                  .step = found.step > 0      ? found.step
                                          : out.steps.empty() ? 0
                                                              : out.steps.back().step,
                                  .loss = found.loss,
                                  .seconds = found.seconds,
                                  .test = found.test});
        } else if (found.event == "end") {
            out.has_ended = true;
            out.stop_signal = found.stop_signal;
            out.samples_per_second = found.samples_per_second;
            out.weights_hash = found.weights_hash;
        } else {
            core::fail(core::text(place, ": \"", core::excerpt(found.event), "\" is no event of a run"),
                       "name a file that ls::json_log, ls::html_report or train --log has written");
        }
    }
    if (is_page && !knows_joined) detail::infer_joined(out.steps);
    if (events == 0)
        core::fail(core::text(source, " holds no event of a run"),
                   "name a file that ls::json_log, ls::html_report or train --log has written");
    return out;
}

LOCKSTEP_FUNCTION run_record read_run(const std::string& path) {
    if (const std::string why = core::why_unreadable(path); !why.empty())
        core::fail(core::text("cannot read the log of a run, ", path, ": ", why),
                   "name a file that ls::json_log, ls::html_report or train --log has written");
    core::input_file file{path};
    std::string text(file.size(), '\0');
    text.resize(file.read(std::as_writable_bytes(std::span{text})));
    return parse_run(text, path);
}

LOCKSTEP_FUNCTION std::string to_lines(const run_record& run) {
    const auto number = [](double value) { return std::isfinite(value) ? core::text(value) : "null"; };
    const auto word = [](std::string_view of) { return core::json_string(core::printable(of)); };
    std::string recipe;
    for (const auto& [name, value] : run.recipe)
        recipe += core::text(recipe.empty() ? "" : ",", word(name), ":", word(value));
    std::string out =
        core::text(R"({"event":"begin","ranks":)", run.ranks, R"(,"threads":)", run.threads, R"(,"host":)",
                   word(run.host), R"(,"command":)", word(run.command), R"(,"recipe":{)", recipe, "}}\n");
    auto epoch = run.epochs.begin();
    const auto epochs_until = [&](std::uint64_t step) {
        for (; epoch != run.epochs.end() && epoch->step <= step; ++epoch) {
            out += core::text(R"({"event":"epoch","epoch":)", epoch->epoch, R"(,"step":)", epoch->step, R"(,"loss":)",
                              number(epoch->loss), R"(,"seconds":)", number(epoch->seconds));
            for (const auto& [name, value] : epoch->test)
                out += core::text(",", word("test_" + name), ":", number(value));
            out += "}\n";
        }
    };
    for (const auto& point : run.steps) {
        if (point.step > 0) epochs_until(point.step - 1);
        out += core::text(R"({"event":"step","step":)", point.step, R"(,"epoch":)", point.epoch, R"(,"samples":)",
                          point.samples, R"(,"loss":)", number(point.loss), R"(,"rate":)", number(point.rate),
                          R"(,"seconds":)", number(point.seconds), R"(,"joined":)", point.joined,
                          point.skipped == 0 ? "" : core::text(R"(,"skipped":)", point.skipped), "}\n");
    }
    epochs_until(std::numeric_limits<std::uint64_t>::max());
    if (run.has_ended)
        out += core::text(R"({"event":"end","stop_signal":)", run.stop_signal, R"(,"samples_per_second":)",
                          number(run.samples_per_second), R"(,"weights_hash":)", word(run.weights_hash), "}\n");
    // Nothing in them ends the element of a page that holds them.
    std::string safe;
    for (const char c : out)
        if (c == '<')
            safe += "\\u003c";
        else
            safe += c;
    return safe;
}

#endif

}  // namespace lockstep::report
