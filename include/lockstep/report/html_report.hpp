// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A page of a run for browsers: an observer.
// Tested by tests/reports/run.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/layout.hpp"
#include "lockstep/report/begun_files.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/report/launch.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/report/run_page.hpp"
#include "lockstep/report/run_record.hpp"
#include "lockstep/report/whole_file.hpp"

namespace lockstep::report {

/// html_report{"report.html"}: one page with everything in it, for any browser, also of a phone: curves of loss,
/// metrics and rate, time by kind, a typical step, communication, memory, the recipe, the command, the machine, and a
/// table of the epochs. Written by rank 0 at the start, after epochs and at the end of fit(), each time as a whole, so
/// it can be read during the run; epochs are left out where writing would take more than a twentieth of the time.
/// Metrics are those of validate{set}, named before it. A run that is resumed goes on with the page that is there, and
/// refuses another file.
/// Cost: about 30 ns a step; an epoch gathers the times and the memory of all ranks and writes some 100 KB, and 300
/// bytes for each epoch; the hash at the end reads all weights. Throws core::error on all ranks where the page cannot
/// be written.
struct html_report {
    static constexpr bool on_every_rank = true;  ///< every rank tells its times
    static constexpr bool gathers_first = true;  ///< names of hosts
    static constexpr bool sees_weights = false;  ///< but for their hash at the end

    std::string path;       ///< of the page
    std::string name{};     ///< of the run; empty: the path
    std::string about{};    ///< a text for the page, such as ls::summary(trainer)
    std::string picture{};  ///< an SVG file that is shown at the end if it is there: that of a timeline, named before
    /// Of the compressors `measured{inner, &statistics}`, for a table of tensors; outlives the report.
    const compress::statistics* messages = nullptr;
    /// What it keeps for itself.
    struct kept {
        run_record run{};                                     ///< what the page shows of epochs and steps
        page_facts facts{};                                   ///< what does not change
        step_curve curve{};                                   ///< of all steps, thinned out
        bool writes = false;                                  ///< on rank 0
        bool is_open = false;                                 ///< from the first fit() on
        std::uint64_t step = 0;                               ///< the last one
        std::uint64_t resumes = 0;                            ///< of the trainer, that are known
        double before = 0;                                    ///< seconds of earlier fits
        double seconds = 0;                                   ///< of this one
        std::chrono::steady_clock::time_point rests_until{};  ///< what writes take is a small part of the time
    };
    kept own{};  ///< its own

    /// What it writes.
    [[nodiscard]] std::array<std::string, 1> files() const { return {path}; }

    /// Reads a page that is there, and writes it anew. Collective, as on_epoch() and on_end() are.
    template <class Trainer>
    [[gnu::cold]] void on_begin(Trainer& trainer, const run_begin& from) {
        const comm::group& ranks = trainer.ranks();
        const auto hosts = ranks.gather_all(std::string_view{host_name()});
        const std::size_t between_layers = trainer.redistribution_bytes();
        // The page of a part of the run that is over stays as it is.
        own.writes = ranks.rank() == 0 && !(from.is_past && core::why_unreadable(path).empty());
        if (!own.writes) return;
        const auto recipe = recipe_lines_of(trainer.recipe_text());
        if (!own.is_open || from.resumes > own.resumes) begin(from, recipe);
        own.run.ranks = ranks.size();
        own.run.threads = trainer.recipe().threads;
        own.run.host = host_name();
        own.run.command = command_line(ranks.size());
        own.run.recipe = recipe;
        own.run.has_ended = false;
        own.run.stop_signal = 0;
        own.run.weights_hash.clear();
        own.before += std::exchange(own.seconds, 0);
        own.facts.steps = from.steps;
        own.facts.hosts = hosts;
        own.facts.memory = trainer.memory();
        own.facts.memory_bytes = trainer.memory_bytes();
        own.facts.bytes_per_step = trainer.averaging_bytes() + between_layers;
        own.facts.synchronous_steps = trainer.synchronous_steps();
        own.facts.synchronous_bytes = trainer.averaging_bytes(0) + between_layers;
        own.facts.transport = trainer.transport();
        write();
    }
    /// Notes it.
    void on_step(const step_event& event) {
        if (!own.writes) return;
        own.step = event.step;
        own.seconds = event.seconds;
        own.curve.add({.step = event.step,
                       .epoch = event.epoch,
                       .samples = event.samples,
                       .loss = event.loss,
                       .rate = event.rate,
                       .seconds = own.before + event.seconds});
    }
    /// Writes the page.
    template <class Trainer>
    [[gnu::cold]] void on_epoch(Trainer& trainer, const epoch_event& event) {
        if (own.writes) own.run.epochs.push_back(point_of(event, own.step));
        gather(trainer);
        if (own.writes && std::chrono::steady_clock::now() >= own.rests_until) write();
    }
    /// Writes it for the last time, with the hash of the weights.
    template <class Trainer>
    [[gnu::cold]] void on_end(Trainer& trainer, const totals& run) {
        gather(trainer);
        const std::uint64_t hash = hash_for_logs(trainer);
        if (!own.writes) return;
        own.run.has_ended = true;
        own.run.stop_signal = static_cast<std::uint64_t>(run.last_fit.stop_signal);
        own.run.samples_per_second = run.samples_per_second();
        own.run.weights_hash = core::hexadecimal(hash);
        add_picture(own.facts, picture);
        write();
    }

private:
    /// Takes over the page of the run that is resumed, up to that step.
    [[gnu::cold]] void begin(const run_begin& from, const recipe_lines& recipe);
    [[gnu::cold]] void add_messages(const std::vector<std::string>& names);
    [[gnu::cold]] void write();

    template <class Trainer>
    [[gnu::cold]] void gather(Trainer& trainer) {
        const totals mine = trainer.report();
        const auto seconds = trainer.ranks().gather_all(mine.seconds);
        const auto memory = trainer.ranks().gather_all(memory_of_process());
        if (!own.writes) return;
        own.facts.seconds = seconds;
        own.facts.process = memory;
        own.facts.steps = mine.steps;
        own.facts.samples = mine.samples;
        own.facts.timed_steps = mine.timed_steps;
        own.facts.element_bytes = sizeof(typename Trainer::value_type);
        // A tensor of several shards is several of each rank.
        std::vector<std::string> names;
        if (messages != nullptr && trainer.grid().shards == 1)
            for (const auto& one : model::weight_layout<typename Trainer::network>) names.push_back(one.full_name());
        add_messages(names);
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void html_report::begin(const run_begin& from, const recipe_lines& recipe) {
    if (path.empty()) core::fail("a report has no path", "name a file: html_report{\"report.html\"}");
    const bool goes_back = own.is_open;
    const std::uint64_t last = goes_back ? from.resumed_after : kept_steps(path, from);
    run_record before;
    if (goes_back) {
        before.steps = own.curve.points();
        before.epochs = own.run.epochs;
        own = {.writes = own.writes};
    } else if ((from.resumed_after > 0 || is_of_run(path, from)) && core::why_unreadable(path).empty()) {
        try {
            before = read_run(path);
        } catch (const core::error&) {
            before = {};  // another file of that name is none of this run
            if (from.resumed_after > 0 && core::input_file{path}.size() > 0) fail_other_run(path, "a page");
        }
        if (from.resumed_after > 0) require_same_run(before.recipe, recipe, path, "a page");
    }
    own.is_open = true;
    begin_file(path, from.run, from.resumes);
    for (const auto& step : before.steps)
        if (step.step <= last) own.curve.add(step);
    for (const auto& epoch : before.epochs)
        if (epoch.step <= last) own.run.epochs.push_back(epoch);
    if (!own.curve.points().empty()) own.before = own.curve.points().back().seconds;
    own.resumes = from.resumes;
    own.run.name = name.empty() ? path : name;
    own.facts.about = about;
    own.step = from.steps;
}

LOCKSTEP_FUNCTION void html_report::add_messages(const std::vector<std::string>& names) {
    own.facts.messages.clear();
    if (messages == nullptr || messages->total().messages == 0) return;
    for (std::size_t tensor = 0; tensor < messages->size(); ++tensor)
        if (messages->of(tensor).messages > 0)
            own.facts.messages.push_back({messages->name_of(tensor, names, "tensor "), messages->of(tensor)});
    own.facts.messages.push_back({"all", messages->total()});
}

LOCKSTEP_FUNCTION void html_report::write() {
    const auto begun = std::chrono::steady_clock::now();
    std::time_t now = std::time(nullptr);
    std::tm parts{};
    char when[64] = {};
    if (::gmtime_r(&now, &parts) != nullptr) std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &parts);
    own.facts.written = when;
    own.run.steps = own.curve.points();
    write_whole(path, run_page(own.run, own.facts));
    const auto ended = std::chrono::steady_clock::now();
    own.rests_until = ended + 20 * (ended - begun);
}

#endif

}  // namespace lockstep::report

namespace lockstep {
using report::html_report;
}  // namespace lockstep
