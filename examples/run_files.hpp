// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the example trainers write beside their lines: files and folders that the options name, or do not.

#include <boost/mpi/collectives/broadcast.hpp>
#include <boost/mpi/communicator.hpp>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/output_file.hpp"
#include "lockstep/report/html_report.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/report/progress.hpp"
#include "lockstep/report/tensorboard.hpp"
#include "lockstep/report/whole_file.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "same_folder.hpp"

namespace example {

namespace ls = lockstep;

/// Logs that may be absent. Those that ask all ranks are told on all of them, the others on rank 0.
struct chosen_logs {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;

    std::optional<ls::progress> lines;
    std::optional<ls::csv_log> csv;
    std::optional<ls::tensorboard> curves;
    std::optional<ls::json_log> json;
    std::optional<ls::html_report> page;
    std::string report, weights, choices, arrivals;  ///< are written when the run has ended
    std::vector<std::string> inputs;                 ///< are read by the run
    bool writes;

    /// `plan`: the text of ls::summary. `picture`: of a timeline. `messages`: what a compressor did.
    template <class Options>
    chosen_logs(const Options& of, bool is_first, const std::string& plan, std::string_view net, const std::string& picture = {},
                double interval = 5, const ls::compress::statistics* messages = nullptr)
        : report{of.report}, weights{of.save_weights}, writes{is_first} {
        if constexpr (requires { of.compress_choices; }) choices = of.compress_choices;
        if constexpr (requires { of.sync_arrivals; }) {
            arrivals = of.sync_arrivals;
            inputs.push_back(of.replay);
        }
        if constexpr (requires { of.load_weights; })
            if (of.load_weights != weights) inputs.push_back(of.load_weights);
        if constexpr (requires { of.compress; })
            if (constexpr std::string_view repeats = "adaptive:"; of.compress.starts_with(repeats))
                inputs.push_back(of.compress.substr(repeats.size()));
        if (!of.quiet) lines.emplace(std::cout, interval);
        if (!of.csv.empty()) csv.emplace(of.csv);
        if (!of.tensorboard.empty()) curves.emplace(of.tensorboard);
        if (!of.log.empty()) json.emplace(of.log);
        if (!of.html.empty())
            page.emplace(ls::html_report{.path = of.html,
                                         .name = ls::core::text(net, " on ", of.data),
                                         .about = plan,
                                         .picture = picture,
                                         .messages = messages});
    }
    /// None is written if two of them are one, or one that is read.
    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> out = outputs();
        for (const std::string& path : inputs)
            if (!path.empty()) out.push_back(path);
        return out;
    }
    template <class Trainer>
    void on_begin(Trainer& trainer, const ls::report::run_begin& from) {
        // All of them can be written before the first one is emptied.
        if (writes) {
            if (!weights.empty()) (void)ls::core::replaced_output(weights);
            for (const std::string& path : outputs()) ls::core::require_output(path);
            if (curves) curves->on_begin(trainer, from);
            if (csv) csv->on_begin(from);
        }
        if (json) json->on_begin(trainer, from);
        if (page) page->on_begin(trainer, from);
    }
    void on_step(const ls::report::step_event& event) {
        if (json) json->on_step(event);
        if (page) page->on_step(event);
        if (!writes) return;
        if (csv) csv->on_step(event);
        if (curves) curves->on_step(event);
        if (lines) lines->on_step(event);
    }
    template <class Trainer>
    void on_epoch(Trainer& trainer, const ls::report::epoch_event& event) {
        if (json) json->on_epoch(event);
        if (page) page->on_epoch(trainer, event);
        if (curves && writes) curves->on_epoch(event);
        if (lines && writes) lines->on_epoch(event);
    }
    template <class Trainer>
    void on_end(Trainer& trainer, const ls::report::totals& of) {
        if (json) json->on_end(trainer, of);
        if (page) page->on_end(trainer, of);
        if (curves && writes) curves->on_end(of);
        if (lines && writes) lines->on_end(of);
    }

private:
    [[nodiscard]] std::vector<std::string> outputs() const {
        std::vector<std::string> out;
        if (csv) out.push_back(csv->files()[0]);
        if (json) out.push_back(json->files()[0]);
        if (page) out.push_back(page->files()[0]);
        for (const std::string& path : {report, weights, choices, arrivals})
            if (!path.empty()) out.push_back(path);
        return out;
    }
};

/// Whether a run goes on from a checkpoint. A folder that it writes its own to may be without one: the first start of a
/// job that is put back into the queue.
[[nodiscard]] inline bool goes_on(const boost::mpi::communicator& world, const std::string& resume,
                                  const std::string& checkpoint) {
    if (resume.empty() || !is_same_folder(resume, checkpoint)) return !resume.empty();
    bool is_there = true;
    try {
        is_there = world.rank() != 0 || ls::saving::exists_in(resume);
    } catch (const std::exception&) {  // resume() says what is wrong, on all ranks
    }
    boost::mpi::broadcast(world, is_there, 0);
    return is_there;
}

/// Checkpoints, if a folder is named.
struct chosen_checkpoints {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    static constexpr bool is_told_last = true;
    ls::checkpoint to;

    template <class Trainer>
    void on_begin(Trainer& trainer, const ls::report::run_begin& from) {
        if (!to.folder.empty()) to.on_begin(trainer, from);
    }
    template <class Trainer>
    void on_step(Trainer& trainer, const ls::report::step_event& event) {
        if (!to.folder.empty()) to.on_step(trainer, event);
    }
    template <class Trainer>
    void on_epoch(Trainer& trainer, const ls::report::epoch_event& event) {
        if (!to.folder.empty()) to.on_epoch(trainer, event);
    }
    template <class Trainer>
    void on_stop(Trainer& trainer, const ls::report::totals& of) {
        if (!to.folder.empty()) to.on_stop(trainer, of);
    }
    [[nodiscard]] bool saves_at_stop() const { return !to.folder.empty(); }
    void on_end(const ls::report::totals& of) { to.on_end(of); }
};

}  // namespace example
