// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Logs for programs: a CSV file with a line for each step, and JSON lines with an object for each begin, step, epoch
// and end. Observers.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/begun_files.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/report/launch.hpp"
#include "lockstep/report/run_record.hpp"

namespace lockstep::report {

/// A file that rank 0 opens with the first line. Every line reaches the file at once. Throws core::error if it cannot
/// be written, or if this process writes it already.
class log_file {
public:
    /// `head`: the first line; empty: none.
    explicit log_file(std::string path, std::string head = {}) : path_{std::move(path)}, head_{std::move(head)} {}

    /// Empties the file, before hours of work are spent on what goes into it. One that could not be written before goes
    /// on after its last whole line.
    [[gnu::cold]] void open();
    /// A run that goes on, from a checkpoint or in a further fit(), keeps the whole lines up to the first one of a
    /// later step. `mark`: what stands before the number of the step in a line of a step. `recipe_text`: of the run,
    /// which is compared with that of the last begin in the file; empty: not known. Throws core::error where a run is
    /// resumed, and the file is another one.
    [[gnu::cold]] void open(const run_begin& from, std::string_view mark, std::string_view recipe_text = {});
    /// Writes and flushes one line. Throws core::error where the disk is full.
    void line(const std::string& text);
    /// Where it writes.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
    [[gnu::cold]] void open_after(std::uint64_t kept);

    std::string path_;
    std::string head_;
    core::output_file file_;
    std::uint64_t whole_ = 0;    // bytes of the lines that were written
    std::uint64_t resumes_ = 0;  // of the trainer, that are known
    std::uint64_t run_ = 0;      // of the trainer
};

/// csv_log{"run.csv"}: step,epoch,samples,loss,rate,seconds,samples_per_second, and of this step on rank 0 in seconds:
/// communication_hidden, communication_exposed, of which last_bucket,no_progress,large_bucket,slow_rank (what is left
/// has other causes).
class csv_log {
public:
    /// Opens nothing yet: fit() does, on rank 0.
    explicit csv_log(std::string path)
        : file_{std::move(path),
                "step,epoch,samples,loss,rate,seconds,samples_per_second,"
                "communication_hidden,communication_exposed,last_bucket,no_progress,"
                "large_bucket,slow_rank"} {}

    /// What it writes.
    [[nodiscard]] std::array<std::string, 1> files() const { return {file_.path()}; }
    /// Opens the file; a resumed run goes on in it.
    void on_begin(const run_begin& from = {}) { file_.open(from, ""); }
    /// A line.
    void on_step(const step_event& event);

private:
    log_file file_;
};

/// A hash of the weights, or 0 on a rank that need not know it: all ranks have to call where looks at the weights are
/// collective.
template <class Trainer>
[[nodiscard, gnu::cold]] std::uint64_t hash_for_logs(const Trainer& trainer) {
    if constexpr (requires { Trainer::looks_are_collective; })
        if (Trainer::looks_are_collective || trainer.ranks().rank() == 0) return trainer.weights_hash();
    return 0;
}

/// json_log{"run.jsonl"}: one object on each line, "event" is begin (of a fit(): recipe, ranks, threads, command),
/// step, epoch or end (with weights_hash, that of the trainer). A number that JSON cannot hold is null.
/// lockstep-compare reads it.
class json_log {
public:
    static constexpr bool on_every_rank = true;  ///< for the hash
    static constexpr bool gathers_first = true;  ///< nothing at the beginning
    static constexpr bool sees_weights = false;  ///< until the end

    /// Opens nothing yet: fit() does, on rank 0.
    explicit json_log(std::string path) : file_{std::move(path)} {}

    /// What it writes.
    [[nodiscard]] std::array<std::string, 1> files() const { return {file_.path()}; }
    /// Opens the file; a resumed run goes on in it.
    void on_begin(const run_begin& from = {}) { open(from, {}); }
    /// The same, and a line with the recipe. On ranks other than 0 it writes nothing, nor does it where the log of a
    /// part of the run that is over is there.
    template <class Trainer>
    [[gnu::cold]] void on_begin(Trainer& trainer, const run_begin& from) {
        writes_ = trainer.ranks().rank() == 0 && !(from.is_past && core::why_unreadable(file_.path()).empty());
        if (!writes_) return;
        const std::string recipe = trainer.recipe_text();
        open(from, recipe);
        file_.line(begin_line(from.steps, trainer.ranks().size(), trainer.recipe().threads, recipe));
    }
    /// A line.
    void on_step(const step_event& event);
    /// A line.
    void on_epoch(const epoch_event& event);
    /// The last line, without a hash.
    void on_end(const totals& run) { end(run, ""); }
    /// The last line, with the hash of all weights. Collective where looks at weights are.
    template <class Trainer>
    [[gnu::cold]] void on_end(const Trainer& trainer, const totals& run) {
        end(run, core::text(R"(,"weights_hash":")", core::hexadecimal(hash_for_logs(trainer)), '"'));
    }

    /// The object that a fit() begins with, after so many steps of the run.
    [[nodiscard, gnu::cold]] static std::string begin_line(std::uint64_t steps, std::size_t ranks, std::size_t threads,
                                                           std::string_view recipe_text);

private:
    /// Seconds, and why they were exposed.
    static std::string communication(const seconds_spent& seconds) {
        return core::text(R"(,"communication_hidden":)", number(seconds.communication_hidden),
                          R"(,"communication_exposed":)", number(seconds.communication_exposed), R"(,"last_bucket":)",
                          number(seconds.because.last_bucket), R"(,"no_progress":)",
                          number(seconds.because.no_progress), R"(,"large_bucket":)",
                          number(seconds.because.large_bucket), R"(,"slow_rank":)", number(seconds.because.slow_rank));
    }
    void open(const run_begin& from, std::string_view recipe) {
        file_.open(from, R"({"event":"step","step":)", recipe);
    }
    static std::string number(double value) { return std::isfinite(value) ? core::text(value) : "null"; }
    [[gnu::cold]] void end(const totals& run, std::string_view also);

    log_file file_;
    bool writes_ = true;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void log_file::open() {
    if (file_.is_open()) return;  // a further fit() goes on in the same file
    std::error_code problem;
    const auto size = whole_ == 0 ? 0 : std::filesystem::file_size(path_, problem);
    open_after(problem || size < whole_ ? 0 : whole_);
}

LOCKSTEP_FUNCTION void log_file::open_after(std::uint64_t kept) {
    if (path_.empty()) core::fail("a log has an empty path", "name the file that it is written to");
    file_.open_after(path_, kept);
    begin_file(path_, run_, resumes_);
    whole_ = kept;
    if (kept == 0 && !head_.empty()) line(head_);
}

namespace detail {

/// Whether a text begins as a log with this first line; without one its lines are objects. The first line may be cut
/// off: the run was killed, or the disk was full.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION bool begins_as_log(std::string_view text, std::string_view head) {
    const std::string begin = head.empty() ? R"({"event":")" : core::text(head, "\n");
    return text.size() < begin.size() ? begin.starts_with(text) : text.starts_with(begin);
}

/// The recipe of the last begin among these lines; empty: there is none.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION recipe_lines last_recipe(std::string_view lines, const std::string& path) {
    const std::string_view begin = R"({"event":"begin")";
    std::size_t at = lines.rfind(begin);
    while (at != lines.npos && at > 0 && lines[at - 1] != '\n') at = lines.rfind(begin, at - 1);
    if (at == lines.npos) return {};
    lines.remove_prefix(at);
    try {
        return parse_line(lines.substr(0, lines.find('\n')), path).recipe;
    } catch (const core::error&) {
        fail_other_run(path, "a log");
    }
}

}  // namespace detail

LOCKSTEP_FUNCTION void log_file::open(const run_begin& from, std::string_view mark, std::string_view recipe_text) {
    run_ = from.run;
    const bool is_readable = core::why_unreadable(path_).empty();
    const bool goes_back = from.undoes(resumes_) && file_.is_open();
    if (goes_back && is_readable) file_.close();
    const bool goes_on = from.resumed_after > 0 || goes_back || is_of_run(path_, from);
    if (!goes_on || file_.is_open() || !is_readable) return open();
    const std::uint64_t last = goes_back ? from.resumed_after : kept_steps(path_, from);
    core::input_file old{path_};
    std::string text(old.size(), '\0');
    text.resize(old.read(std::as_writable_bytes(std::span{text})));
    if (!detail::begins_as_log(text, head_)) {
        if (from.resumed_after > 0) fail_other_run(path_, "a log");
        return open();
    }
    std::size_t kept = 0;
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', kept)) {
        std::string_view line{text.data() + kept, end - kept};
        if (line.starts_with(mark)) {
            std::uint64_t step = 0;
            const char* const number = line.data() + mark.size();
            (void)std::from_chars(number, line.data() + line.size(), step);
            if (step > last) break;
        }
        kept = end + 1;
    }
    if (from.resumed_after > 0 && !recipe_text.empty())
        require_same_run(detail::last_recipe(std::string_view{text}.substr(0, kept), path_),
                         recipe_lines_of(recipe_text), path_, "a log");
    open_after(kept);
}

LOCKSTEP_FUNCTION void log_file::line(const std::string& text) {
    if (!file_.is_open()) open();
    file_.write(text + "\n");
    whole_ += text.size() + 1;
}

LOCKSTEP_FUNCTION void csv_log::on_step(const step_event& event) {
    file_.line(core::text(
        event.step, ",", event.epoch, ",", event.samples, ",", event.loss, ",", event.rate, ",",
        core::fixed(event.seconds, 6), ",", core::fixed(event.samples_per_second, 1), ",",
        core::fixed(event.spent.communication_hidden, 6), ",", core::fixed(event.spent.communication_exposed, 6), ",",
        core::fixed(event.spent.because.last_bucket, 6), ",", core::fixed(event.spent.because.no_progress, 6), ",",
        core::fixed(event.spent.because.large_bucket, 6), ",", core::fixed(event.spent.because.slow_rank, 6)));
}

LOCKSTEP_FUNCTION std::string json_log::begin_line(std::uint64_t steps, std::size_t ranks, std::size_t threads,
                                                   std::string_view recipe_text) {
    std::string recipe;
    for (const auto& [name, value] : recipe_lines_of(recipe_text))
        recipe += core::text(recipe.empty() ? "" : ",", core::json_string(core::printable(name)), ":",
                             core::json_string(core::printable(value)));
    return core::text(R"({"event":"begin","steps":)", steps, R"(,"ranks":)", ranks, R"(,"threads":)", threads,
                      R"(,"host":)", core::json_string(core::printable(host_name())), R"(,"command":)",
                      core::json_string(core::printable(command_line(ranks))), R"(,"recipe":{)", recipe, "}}");
}

LOCKSTEP_FUNCTION void json_log::on_step(const step_event& event) {
    if (!writes_) return;
    file_.line(core::text(R"({"event":"step","step":)", event.step, R"(,"epoch":)", event.epoch, R"(,"samples":)",
                          event.samples, R"(,"loss":)", number(event.loss), R"(,"rate":)", number(event.rate),
                          R"(,"seconds":)", number(event.seconds), R"(,"samples_per_second":)",
                          number(event.samples_per_second), communication(event.spent), "}"));
}

LOCKSTEP_FUNCTION void json_log::on_epoch(const epoch_event& event) {
    if (!writes_) return;
    std::string text = core::text(R"({"event":"epoch","epoch":)", event.epoch, R"(,"loss":)", number(event.loss),
                                  R"(,"seconds":)", number(event.seconds));
    if (event.test) text += core::text(R"(,"test_loss":)", number(event.test->loss));
    if (event.test && event.test->accuracy) text += core::text(R"(,"test_accuracy":)", number(*event.test->accuracy));
    if (event.test)
        for (const auto& metric : event.test->metrics)
            if (metric.name != "loss" && !(metric.name == "accuracy" && event.test->accuracy))
                text += core::text(",", core::json_string(core::text("test_", core::printable(metric.name))), ":",
                                   number(metric.value));
    file_.line(text + "}");
}

LOCKSTEP_FUNCTION void json_log::end(const totals& run, std::string_view also) {
    if (!writes_) return;
    file_.line(core::text(
        R"({"event":"end","steps":)", run.steps, R"(,"samples":)", run.samples, R"(,"fit_steps":)", run.last_fit.steps,
        R"(,"fit_seconds":)", number(run.last_fit.seconds), R"(,"stop_signal":)", run.last_fit.stop_signal,
        R"(,"samples_per_second":)", number(run.samples_per_second()), R"(,"bytes_sent":)", run.bytes_sent,
        R"(,"forward":)", number(run.seconds.forward), R"(,"backward":)", number(run.seconds.backward),
        R"(,"communication_hidden":)", number(run.seconds.communication_hidden), R"(,"communication_exposed":)",
        number(run.seconds.communication_exposed), R"(,"update":)", number(run.seconds.update), R"(,"data":)",
        number(run.seconds.data), R"(,"core_hours":)", number(run.core_hours()), also, "}"));
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::csv_log;
using report::json_log;
}  // namespace lockstep
