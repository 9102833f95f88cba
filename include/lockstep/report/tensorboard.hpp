// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Curves of a run for TensorBoard: an observer.
// Tested by tests/reports/run.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/begun_files.hpp"
#include "lockstep/report/event_file.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// tensorboard{"runs/a"}: rank 0 writes event files into this folder, which belongs to one run; open them with
/// `tensorboard --logdir runs`. After each `every`-th step, over the step number: train/loss, train/learning_rate,
/// train/samples_per_second (since the entry before), and step_time/data, forward, backward, update,
/// communication_hidden, communication_exposed (seconds of this step on rank 0). After each epoch: train/epoch_loss,
/// and test/loss, test/accuracy and test/METRIC of validate{set}, named before it. The recipe is a text.
/// Numbers are of 32 bits. They reach the file at once, before ls::checkpoint saves the step. A run
/// that is resumed goes on with a new file; of a run that begins anew readers drop what older files of the folder say.
/// Cost: about 3 us and 290 bytes an entry. Throws core::error before the first step where the folder cannot be
/// written or another run writes there, later where the disk is full.
class tensorboard {
public:
    /// `folder` is made if it is missing; an entry of steps after each `every`-th one.
    explicit tensorboard(std::string folder, std::size_t every = 1) : folder_{std::move(folder)}, every_{every} {}

    /// Opens a file. Throws core::error where that cannot be.
    [[gnu::cold]] void on_begin(const run_begin& from = {});
    /// The same, and the recipe.
    template <class Trainer>
    [[gnu::cold]] void on_begin(Trainer& trainer, const run_begin& from) {
        const bool is_new = !file_.is_open();
        on_begin(from);
        if constexpr (requires { trainer.recipe_text(); })
            if (is_new) recipe(trainer.recipe_text());
    }
    /// An entry.
    void on_step(const step_event& event);
    /// An entry.
    [[gnu::cold]] void on_epoch(const epoch_event& event);
    /// Nothing is left in memory.
    [[gnu::cold]] void on_end(const totals&) { file_.flush(); }

    /// Of the file that it writes; empty before the first fit().
    [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

private:
    [[nodiscard]] static double now() noexcept {
        return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    }
    [[gnu::cold]] void recipe(const std::string& lines);

    std::string folder_;
    std::size_t every_ = 1;
    event_file file_;
    double origin_ = 0;        // seconds since 1970 at second 0 of this fit()
    double seconds_ = 0;       // of the last step, since fit() began
    double last_entry_ = 0;    // likewise
    std::size_t samples_ = 0;  // since the last entry
    std::uint64_t step_ = 0;
    std::uint64_t resumes_ = 0;  // of the trainer, that are known
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void tensorboard::on_begin(const run_begin& from) {
    if (every_ == 0) core::fail("an entry after every 0th step was asked for", "take a number of steps such as 10");
    origin_ = now();
    seconds_ = last_entry_ = 0;
    samples_ = 0;
    step_ = from.steps;
    // A further fit() of this run goes on in the same file.
    const bool goes_back = from.undoes(resumes_);
    const bool goes_on = from.resumed_after > 0 || is_of_run(folder_, from);
    const std::uint64_t done = goes_back && file_.is_open() ? from.resumed_after
                               : goes_on                    ? kept_steps(folder_, from)
                                                            : 0;
    const std::uint64_t first = done == 0 ? 0 : done + 1;
    if (!file_.is_open())
        file_.open(folder_, first, origin_);
    else if (goes_back)
        file_.restart(first, origin_);
    begin_file(folder_, from.run, from.resumes);
}

LOCKSTEP_FUNCTION void tensorboard::recipe(const std::string& lines) {
    // A block of code: Markdown takes nothing in it for markup.
    std::string block = "    ";
    for (const char c : core::printable(lines, true)) (block += c) += c == '\n' ? "    " : "";
    file_.text(step_, origin_, "recipe", block);
    file_.flush();
}

LOCKSTEP_FUNCTION void tensorboard::on_step(const step_event& event) {
    step_ = event.step;
    seconds_ = event.seconds;
    samples_ += event.samples;
    if (event.step % every_ != 0) return;
    const double passed = event.seconds - last_entry_;
    const auto number = [](double value) { return static_cast<float>(value); };
    const std::array<named_scalar, 9> values{
        {{"train/loss", number(event.loss)},
         {"train/learning_rate", number(event.rate)},
         {"train/samples_per_second", number(passed > 0 ? static_cast<double>(samples_) / passed : 0)},
         {"step_time/data", number(event.spent.data)},
         {"step_time/forward", number(event.spent.forward)},
         {"step_time/backward", number(event.spent.backward)},
         {"step_time/update", number(event.spent.update)},
         {"step_time/communication_hidden", number(event.spent.communication_hidden)},
         {"step_time/communication_exposed", number(event.spent.communication_exposed)}}};
    file_.scalars(event.step, origin_ + event.seconds, values);
    samples_ = 0;
    last_entry_ = event.seconds;
    file_.flush();
}

LOCKSTEP_FUNCTION void tensorboard::on_epoch(const epoch_event& event) {
    // Seconds of steps leave validation out. Times never go back, as the clock of a machine may.
    origin_ = std::max(origin_, now() - seconds_);
    std::vector<std::pair<std::string, double>> found{{"train/epoch_loss", event.loss}};
    if (event.test) {
        found.emplace_back("test/loss", event.test->loss);
        if (event.test->accuracy) found.emplace_back("test/accuracy", *event.test->accuracy);
        for (const auto& metric : event.test->metrics)
            if (metric.name != "loss" && !(metric.name == "accuracy" && event.test->accuracy))
                found.emplace_back("test/" + core::printable(metric.name), metric.value);
    }
    std::vector<named_scalar> values;
    for (const auto& [tag, value] : found) values.push_back({tag, static_cast<float>(value)});
    file_.scalars(step_, origin_ + seconds_, values);
    file_.flush();
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::tensorboard;
}  // namespace lockstep
