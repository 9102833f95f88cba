// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs side by side, from their logs: what lockstep-compare prints and draws.

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
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/page_parts.hpp"
#include "lockstep/report/run_record.hpp"

namespace lockstep::report {

/// A line of a recipe that is not the same in all runs; "-" where a run has none of that name.
struct recipe_difference {
    std::string name;
    std::vector<std::string> values;  ///< of each run
};
[[nodiscard, gnu::cold]] std::vector<recipe_difference> recipe_differences(const std::vector<run_record>& runs);

/// How far the bits of two runs are the same, by the losses of their steps. Pages of long runs have means of several
/// steps: they are compared with the means of the same steps, to 1e-9. A mean over a gap counts where both have it.
struct common_steps {
    std::uint64_t same = 0;           ///< steps with equal losses before the first that differs
    std::uint64_t in_means = 0;       ///< of these, steps of which a mean was compared
    std::optional<step_point> first;  ///< of the first run, where the losses differ; the last step of a mean
    double other = 0;                 ///< loss of the second run there
};
[[nodiscard, gnu::cold]] common_steps steps_in_common(const run_record& a, const run_record& b);
/// Whether both have the same losses in the same steps, and no different hash of weights. Means alone do not show it:
/// then both hashes have to be there.
[[nodiscard, gnu::cold]] bool have_same_bits(const run_record& a, const run_record& b);

/// A value of a metric of the test set, or of the training loss, that counts as reached.
struct target {
    std::string metric;  ///< accuracy, loss, .. of the test set; "training loss"
    double value = 0;
    bool from_below = false;  ///< reached at this value or above; else at this value or below

    /// "accuracy=0.98" or "loss=0.1". Names that begin with loss or training loss, and mean_absolute_error and the
    /// like, are reached from above: all but accuracy, top_k, precision, recall, f1 and r_squared. Throws core::error.
    [[nodiscard, gnu::cold]] static target parse(std::string_view words);
};
/// The best that all runs have reached: of the accuracy where all have measured it, else of the loss. None without
/// epochs.
[[nodiscard, gnu::cold]] std::optional<target> common_target(const std::vector<run_record>& runs);

/// Seconds of training until the end of an epoch, also of a run that was resumed inside of it.
[[nodiscard, gnu::cold]] double seconds_until(const run_record& run, const epoch_point& epoch);

/// Seconds of training until a run has reached it, by the ends of its epochs.
struct reached {
    double seconds = 0;
    std::uint64_t epoch = 0;
};
[[nodiscard, gnu::cold]] std::optional<reached> time_to(const run_record& run, const target& to);

/// Tables for a terminal. `to`: none is common_target().
[[nodiscard, gnu::cold]] std::string compare(const std::vector<run_record>& runs, const std::optional<target>& to = {});
/// The same as a page, with curves over each other.
[[nodiscard, gnu::cold]] std::string comparison_page(const std::vector<run_record>& runs,
                                                     const std::optional<target>& to = {});

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::vector<recipe_difference> recipe_differences(const std::vector<run_record>& runs) {
    std::vector<std::string> names;
    for (const auto& run : runs)
        for (const auto& [name, value] : run.recipe)
            if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    std::vector<recipe_difference> out;
    for (const auto& name : names) {
        recipe_difference line{name, {}};
        for (const auto& run : runs) {
            const auto found =
                std::find_if(run.recipe.begin(), run.recipe.end(), [&](const auto& of) { return of.first == name; });
            line.values.push_back(found == run.recipe.end() ? "-" : found->second);
        }
        const auto differs = [&](const auto& value) { return value != line.values.front(); };
        if (std::any_of(line.values.begin(), line.values.end(), differs)) out.push_back(std::move(line));
    }
    return out;
}

LOCKSTEP_FUNCTION common_steps steps_in_common(const run_record& a, const run_record& b) {
    common_steps out;
    const auto are_equal = [](const step_point& x, double loss) {
        const double may_differ = x.joined > 1 ? 1e-9 * std::max(std::abs(x.loss), std::abs(loss)) : 0;
        return x.loss == loss || (std::isnan(x.loss) && std::isnan(loss)) || std::abs(x.loss - loss) <= may_differ;
    };
    auto one = a.steps.begin(), other = b.steps.begin();
    while (one != a.steps.end() && other != b.steps.end()) {
        if (one->first() != other->first()) {
            one->first() < other->first() ? ++one : ++other;
            continue;
        }
        const bool has_gap = one->skipped > 0, other_has_gap = other->skipped > 0;
        if (has_gap || other_has_gap) {
            // Which steps it lacks is not known: equal means are of the same ones, different ones show nothing.
            if (one->step == other->step && one->joined == other->joined && are_equal(*one, other->loss)) {
                out.same += one->joined;
                out.in_means += one->joined;
            }
            if (has_gap) ++one;
            if (other_has_gap) ++other;
            continue;
        }
        // The least steps that both have whole.
        step_point x = *one++, y = *other++;
        const auto takes_in = [](step_point& to, auto& from, const auto& end) {
            if (from == end || from->first() != to.step + 1 || from->skipped > 0) return false;
            to.join(*from++);
            return true;
        };
        bool goes_on = true;
        while (x.step != y.step && goes_on)
            goes_on = x.step < y.step ? takes_in(x, one, a.steps.end()) : takes_in(y, other, b.steps.end());
        if (x.step != y.step) continue;
        if (!are_equal(x, y.loss)) {
            out.first = x;
            out.other = y.loss;
            break;
        }
        out.same += x.joined;
        if (x.joined > 1) out.in_means += x.joined;
    }
    return out;
}

namespace detail {

[[nodiscard]] LOCKSTEP_FUNCTION std::uint64_t steps_of(const run_record& run) {
    std::uint64_t out = 0;
    for (const auto& point : run.steps) out += point.joined;
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION bool have_same_bits(const run_record& a, const run_record& b) {
    const auto common = steps_in_common(a, b);
    const bool knows_no_hash = a.weights_hash.empty() || b.weights_hash.empty();
    return !common.first && (common.same > 0 || !knows_no_hash) && common.same == detail::steps_of(a) &&
           common.same == detail::steps_of(b) &&
           (knows_no_hash ? common.in_means == 0 : a.weights_hash == b.weights_hash);
}

LOCKSTEP_FUNCTION target target::parse(std::string_view words) {
    const std::size_t sign = words.find('=');
    target out;
    if (sign != words.npos) {
        out.metric = words.substr(0, sign);
        const std::string_view digits = words.substr(sign + 1);
        const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), out.value);
        if (problem == std::errc{} && end == digits.data() + digits.size() && std::isfinite(out.value) &&
            !out.metric.empty()) {
            for (const std::string_view name : {"accuracy", "top", "precision", "recall", "f1", "r_squared"})
                out.from_below = out.from_below || out.metric.starts_with(name);
            return out;
        }
    }
    core::fail(core::text("'", words, "' is no target"), "write METRIC=VALUE, such as accuracy=0.98 or loss=0.1");
}

namespace detail {

[[nodiscard]] LOCKSTEP_FUNCTION double value_of(const epoch_point& epoch, const target& to) {
    return to.metric == "training loss" ? epoch.loss : epoch.metric(to.metric);
}
[[nodiscard]] LOCKSTEP_FUNCTION std::string text_of(const target& to) {
    return core::text(to.metric == "training loss" ? "" : "test ", to.metric,
                      to.from_below ? " >= " : " <= ", html::number(to.value));
}

/// Columns to the left, two blanks between them.
[[nodiscard]] LOCKSTEP_FUNCTION std::string columns(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], row[i].size());
        }
    std::string out;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i];
            if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
        }
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
}

/// A, B, .., Z, run 27, ..
[[nodiscard]] LOCKSTEP_FUNCTION std::string letter(std::size_t run) {
    return run < 26 ? std::string(1, static_cast<char>('A' + run)) : core::text("run ", run + 1);
}

/// Of all runs, each number once. A run that has gone on within an epoch has parts of it.
[[nodiscard]] LOCKSTEP_FUNCTION std::vector<std::uint64_t> numbers_of_epochs(std::span<const run_record> runs) {
    std::vector<std::uint64_t> out;
    for (const auto& run : runs)
        for (const auto& epoch : run.epochs) out.push_back(epoch.epoch);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

using table_rows = std::vector<std::vector<std::string>>;

/// Numbers of each run, a row for each kind.
[[nodiscard]] LOCKSTEP_FUNCTION table_rows overview(const std::vector<run_record>& runs,
                                                    const std::optional<target>& to) {
    table_rows out;
    const auto row = [&](const std::string& name, const auto& f) {
        std::vector<std::string> cells{name};
        for (const auto& run : runs) cells.push_back(f(run));
        out.push_back(std::move(cells));
    };
    row("file", [](const auto& run) { return core::printable(run.name); });
    row("ranks x threads", [](const auto& run) {
        return run.ranks == 0 ? std::string{"not in the log"} : core::text(run.ranks, " x ", run.threads);
    });
    row("steps", [](const auto& run) {
        const std::string_view state = !run.has_ended ? ", not ended" : run.stop_signal != 0 ? ", stopped" : "";
        return core::text(run.steps.empty() ? "0" : core::grouped(run.steps.back().step), state);
    });
    row("epochs", [](const auto& run) { return core::text(numbers_of_epochs(std::span{&run, 1}).size()); });
    row("training loss",
        [](const auto& run) { return run.epochs.empty() ? std::string{"-"} : html::number(run.epochs.back().loss); });
    std::vector<std::string> metrics;
    for (const auto& run : runs)
        for (const auto& metric : run.metrics())
            if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end()) metrics.push_back(metric);
    for (const auto& metric : metrics)
        row("test " + core::printable(metric), [&](const auto& run) {
            const auto* const last = run.last_with(metric);
            return last == nullptr ? std::string{"-"} : html::number(last->metric(metric));
        });
    row("samples/s", [](const auto& run) {
        double samples = 0;
        for (const auto& step : run.steps) samples += static_cast<double>(step.samples);
        return run.steps.empty() || !(run.steps.back().seconds > 0) ? std::string{"-"}
                                                                    : html::number(samples / run.steps.back().seconds);
    });
    row("time", [](const auto& run) {
        return run.steps.empty() ? std::string{"-"} : html::duration(run.steps.back().seconds);
    });
    if (to)
        row("until " + text_of(*to), [&](const auto& run) {
            const auto when = time_to(run, *to);
            if (!when) return std::string{"never"};
            return core::text(std::isfinite(when->seconds) ? html::duration(when->seconds) + ", " : "", "epoch ",
                              when->epoch);
        });
    row("weights", [](const auto& run) {
        return run.weights_hash.empty() ? std::string{"not in the log"} : core::printable(run.weights_hash);
    });
    return out;
}

/// One sentence for each further run.
[[nodiscard]] LOCKSTEP_FUNCTION std::vector<std::string> bits(const std::vector<run_record>& runs) {
    std::vector<std::string> out;
    for (std::size_t i = 1; i < runs.size(); ++i) {
        const auto& a = runs[0];
        const auto& b = runs[i];
        const auto common = steps_in_common(a, b);
        std::string line = core::text("A and ", letter(i), ": ");
        if (common.first)
            line += core::text("first differ in ", common.first->joined > 1 ? "the mean of steps " : "step ",
                               common.first->joined > 1 ? core::text(common.first->first(), " to ") : "",
                               common.first->step, " (epoch ", common.first->epoch, "), loss ", common.first->loss,
                               " and ", common.other);
        else if (common.same == 0)
            line += "have no step in common";
        else
            line += core::text("equal losses in all ", core::grouped(common.same), " steps",
                               common.same == steps_of(a) && common.same == steps_of(b) ? "" : " that both have",
                               common.in_means == 0
                                   ? ""
                                   : core::text(", ", core::grouped(common.in_means), " of them as means of several"));
        const bool end_together = a.steps.empty() || b.steps.empty() ? a.steps.empty() && b.steps.empty()
                                                                     : a.steps.back().step == b.steps.back().step;
        if (!end_together)
            line += "; they end after different steps";
        else if (!a.weights_hash.empty() && !b.weights_hash.empty())
            line += a.weights_hash == b.weights_hash ? "; equal weights at the end" : "; different weights at the end";
        out.push_back(line + ".");
    }
    return out;
}

/// Loss and metrics of each epoch that any of them has.
[[nodiscard]] LOCKSTEP_FUNCTION table_rows epochs_of(const std::vector<run_record>& runs) {
    std::vector<std::string> head{"epoch"};
    std::vector<std::pair<std::size_t, std::string>> columns;  // run, metric; "": training loss
    const auto add = [&](const std::string& metric) {
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const auto known = runs[i].metrics();
            if (!metric.empty() && std::find(known.begin(), known.end(), metric) == known.end()) continue;
            head.push_back(core::text(metric.empty() ? "loss" : "test " + core::printable(metric), " ", letter(i)));
            columns.emplace_back(i, metric);
        }
    };
    add("");
    add("loss");
    add("accuracy");
    table_rows out{head};
    for (const std::uint64_t number : numbers_of_epochs(runs)) {
        std::vector<std::string> row{core::text(number)};
        for (const auto& [run, metric] : columns) {
            const auto& all = runs[run].epochs;
            const auto found =
                std::find_if(all.rbegin(), all.rend(), [&](const auto& epoch) { return epoch.epoch == number; });
            if (found == all.rend() || !(metric.empty() || found->has(metric)))
                row.push_back("-");
            else
                row.push_back(html::number(metric.empty() ? found->loss : found->metric(metric)));
        }
        out.push_back(std::move(row));
    }
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::optional<target> common_target(const std::vector<run_record>& runs) {
    for (target to : {target{"accuracy", 0, true}, target{"loss", 0, false}, target{"training loss", 0, false}}) {
        bool is_everywhere = !runs.empty();
        double all = to.from_below ? 1e300 : -1e300;
        for (const auto& run : runs) {
            double best = to.from_below ? -1e300 : 1e300;
            bool is_there = false;
            for (const auto& epoch : run.epochs) {
                const double value = detail::value_of(epoch, to);
                if (!std::isfinite(value)) continue;
                is_there = true;
                best = to.from_below ? std::max(best, value) : std::min(best, value);
            }
            is_everywhere = is_everywhere && is_there;
            all = to.from_below ? std::min(all, best) : std::max(all, best);
        }
        to.value = all;
        if (is_everywhere) return to;
    }
    return {};
}

LOCKSTEP_FUNCTION double seconds_until(const run_record& run, const epoch_point& epoch) {
    const auto at = std::lower_bound(run.steps.begin(), run.steps.end(), epoch.step,
                                     [](const step_point& point, std::uint64_t step) { return point.step < step; });
    return at == run.steps.end() ? std::numeric_limits<double>::quiet_NaN() : at->seconds;
}

LOCKSTEP_FUNCTION std::optional<reached> time_to(const run_record& run, const target& to) {
    for (const auto& epoch : run.epochs) {
        const double value = detail::value_of(epoch, to);
        if (to.from_below ? value >= to.value : value <= to.value)
            return reached{seconds_until(run, epoch), epoch.epoch};
    }
    return {};
}

LOCKSTEP_FUNCTION std::string compare(const std::vector<run_record>& runs, const std::optional<target>& to) {
    detail::table_rows head{{""}};
    for (std::size_t i = 0; i < runs.size(); ++i) head[0].push_back(detail::letter(i));
    for (auto& row : detail::overview(runs, to ? to : common_target(runs))) head.push_back(std::move(row));
    std::string out = detail::columns(head) + "\nbits\n";
    for (const auto& line : detail::bits(runs)) out += "  " + line + "\n";
    const bool has_recipes = std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.recipe.empty(); });
    const auto differences = recipe_differences(runs);
    if (!has_recipes)
        out += "\nrecipe  not in the logs\n";
    else if (differences.empty())
        out += "\nrecipe  equal\n";
    else {
        out += "\nrecipe  differs in\n";
        for (const auto& line : differences) {
            out += core::text("  ", core::printable(line.name), "\n");
            for (std::size_t i = 0; i < runs.size(); ++i)
                out += core::text("    ", detail::letter(i), "  ", core::printable(line.values[i]), "\n");
        }
    }
    const auto epochs = detail::epochs_of(runs);
    return epochs.size() > 1 ? out + "\n" + detail::columns(epochs) : out;
}

LOCKSTEP_FUNCTION std::string comparison_page(const std::vector<run_record>& runs, const std::optional<target>& to) {
    html::chart loss{.title = "Training loss", .x_name = "epoch", .is_logarithmic = true};
    html::chart steps{.title = "Training loss of steps", .x_name = "step", .is_logarithmic = true};
    html::chart test_loss{.title = "Test loss", .x_name = "epoch", .is_logarithmic = true};
    html::chart accuracy{.title = "Test accuracy", .x_name = "epoch"};
    html::chart timed{
        .title = "Training loss by time", .x_name = "seconds of training", .is_logarithmic = true, .counts_x = false};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::string name = core::text(detail::letter(i), ": ", runs[i].name);
        const int color = static_cast<int>(i % 8);
        // Equal curves lie on each other: those below are wider.
        const double width = 2 + 1.5 * std::min(3.0, static_cast<double>(runs.size() - 1 - i));
        html::series of_loss{.name = name, .color = color, .has_dots = true, .width = width},
            of_test = of_loss, of_accuracy = of_loss, of_time = of_loss,
            of_steps{.name = name, .color = color, .width = width};
        for (const auto& epoch : runs[i].epochs) {
            const auto x = static_cast<double>(epoch.epoch);
            of_loss.points.push_back({x, epoch.loss});
            of_time.points.push_back({seconds_until(runs[i], epoch), epoch.loss});
            if (epoch.has("loss")) of_test.points.push_back({x, epoch.metric("loss")});
            if (epoch.has("accuracy")) of_accuracy.points.push_back({x, epoch.metric("accuracy")});
        }
        step_curve few{512};
        for (const auto& step : runs[i].steps) few.add(step);
        for (const auto& step : few.points()) of_steps.points.push_back({static_cast<double>(step.step), step.loss});
        loss.curves.push_back(std::move(of_loss));
        timed.curves.push_back(std::move(of_time));
        test_loss.curves.push_back(std::move(of_test));
        accuracy.curves.push_back(std::move(of_accuracy));
        steps.curves.push_back(std::move(of_steps));
    }
    std::vector<std::string> head{""};
    for (std::size_t i = 0; i < runs.size(); ++i) head.push_back(detail::letter(i));
    std::string body =
        core::text("<h1>", runs.size(), " runs</h1>\n<p class=\"lead\">Side by side, from their logs.</p>\n");
    body += html::section("Overview", html::table("Seconds are of training, without validation", head,
                                                  detail::overview(runs, to ? to : common_target(runs)), true));
    body += "<div class=\"charts\">\n";
    for (const auto& chart : {loss, accuracy, test_loss, timed, steps}) body += html::to_html(chart);
    body += "</div>\n";
    std::string sentences;
    for (const auto& line : detail::bits(runs)) sentences += core::text("<p>", html::escape(line), "</p>\n");
    body += html::section("Bits", sentences);
    detail::table_rows rows;
    for (const auto& line : recipe_differences(runs)) {
        rows.push_back({line.name});
        rows.back().insert(rows.back().end(), line.values.begin(), line.values.end());
    }
    body += html::section("Recipe", rows.empty() ? "<p>The recipes are equal, or not in the logs.</p>\n"
                                                 : html::table("Lines that differ", head, rows, true));
    auto epochs = detail::epochs_of(runs);
    if (epochs.size() > 1) {
        const auto names = epochs.front();
        epochs.erase(epochs.begin());
        body += html::section("Epochs", html::table("Loss and metrics", names, epochs));
    }
    return html::page("Runs compared - lockstep", body);
}

#endif

}  // namespace lockstep::report
