// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Saves a run now and then: an observer.
// Tested by tests/equivalence/checkpoints.cpp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/saving/save.hpp"

namespace lockstep::saving {

/// checkpoint{"runs/a", 500, 2}: writes runs/a/step-N after every 500th step of the run, and where a signal ends it,
/// and keeps the newest two; all other observers hear of the step before, and of the epoch where it ends one. Go on
/// with trainer.resume("runs/a"). Cost, for each of them: trainer.save(). With
/// `.write_behind` the state is copied instead, a thread writes the copy, and a later step commits it: memory for
/// another state, and a core that is free.
struct checkpoint {
    static constexpr bool on_every_rank = true;  ///< all ranks write
    static constexpr bool sees_weights = false;  ///< save() waits for them itself
    static constexpr bool owns_folder = true;    ///< another one would delete what it keeps
    static constexpr bool is_told_last = true;   ///< what other observers know is in it

    std::string folder;                       ///< on a file system that all ranks see
    std::uint64_t every = 1000;               ///< steps
    std::size_t keep = 2;                     ///< 0: all of them
    bool write_behind = false;                ///< whether a thread writes a copy
    std::shared_ptr<background> under_way{};  ///< its own
    bool waits_for_epoch = false;             ///< its own
    bool waits_for_weights = false;           ///< its own
    bool stops = false;                       ///< its own
    bool is_saved = false;                    ///< its own: what observers know now is in the last checkpoint
    run_lock held{};                          ///< its own: no other run writes to the folder

    /// Makes the folder. Throws core::error for settings that make no sense, a folder that a rank does not see or
    /// cannot write, or that another run is writing to, one with a later step, and where MPI was initialised without
    /// the threads of write_behind. Collective.
    template <class Trainer>
    void on_begin(Trainer& trainer, const report::run_begin& from) {
        under_way = nullptr;  // of a run that has failed
        waits_for_epoch = waits_for_weights = stops = is_saved = false;
        held = {};
        const long_waits others{trainer.ranks()};
        run_lock now;
        // By a name that is new: an earlier run may have left its locks on a disk that only this rank has.
        struct trial_folder {
            const std::string& in;
            std::string name{};
            ~trial_folder() {
                if (!name.empty()) remove_checkpoint(in + name);
            }
        } trial{folder};
        together(trainer.ranks(), [&] {
            if (folder.empty()) core::fail("a checkpoint has no folder", "name one: checkpoint{\"runs/a\"}");
            if (every == 0)
                core::fail("checkpoints after every 0th step were asked for", "take a number of steps such as 1000");
            if (write_behind) background::require_threads();
            folder = absolute(folder);  // wherever the program goes meanwhile
            if (trainer.ranks().rank() != 0) return;
            make_folders(folder);
            now = run_lock{folder};
            require_earlier(folder, from.steps);
            (void)folder_lock{folder};
            trial.name = unfinished_name(folder).substr(folder.size());
            make_folders(folder + trial.name, false);
        });
        const std::string name = of_first_rank(trainer.ranks(), trial.name);
        const std::string first = of_first_rank(trainer.ranks(), folder);
        together(trainer.ranks(), [&] {
            if (trainer.ranks().rank() == 0) return;
            if (first != folder && !appears(folder + name))
                core::fail(core::text("rank ", trainer.ranks().rank(), " does not see in ", folder,
                                      " what rank 0 has made in ", first),
                           "start all ranks in one folder, or name one on a file system that all ranks share");
            require_seen(trainer.ranks(), folder + name, folder);
            (void)placed_file{folder + "/run.lock", placed_file::use::write};
        });
        held = std::move(now);
    }
    /// Saves where it is due, or where weights of that step or a later one are there; after the last step of an epoch,
    /// or of a fit() that no observer ends earlier, on_epoch() does, so that a run that goes on from there has had what
    /// other observers make of it. Collective.
    template <class Trainer>
    void on_step(Trainer& trainer, const report::step_event& event) {
        const bool is_due = event.step % every == 0 || event.stop_signal != 0 || waits_for_epoch || waits_for_weights;
        waits_for_weights = is_due && !event.has_weights;
        if (!event.has_weights) return;
        waits_for_epoch = is_due && (event.ends_epoch || (event.steps_left == 0 && event.stop_signal == 0));
        // All ranks ask each other now and then.
        constexpr std::uint64_t interval = 8;
        if (under_way && (is_due || (event.step % interval == 0 && under_way->is_written_everywhere()))) finish();
        is_saved = is_due && !waits_for_epoch;
        if (is_saved) save(trainer, event.stop_signal == 0);
        stops = event.stop_signal != 0;
    }
    /// Collective.
    template <class Trainer>
    void on_epoch(Trainer& trainer, const report::epoch_event&) {
        is_saved = std::exchange(waits_for_epoch, false);
        if (is_saved) save(trainer, !stops);
    }
    /// Saves where a signal came after the last step. Collective.
    template <class Trainer>
    void on_stop(Trainer& trainer, const report::totals&) {
        if (under_way) finish();
        if (!is_saved) save(trainer, false);
    }
    /// Waits for what is being written. Collective.
    void on_end(const report::totals&) {
        if (under_way) finish();
        held = {};
    }

    /// Behind the run where it may be, and goes on. Collective.
    template <class Trainer>
    void save(Trainer& trainer, bool goes_on) {
        if (write_behind && goes_on)
            under_way = trainer.save_behind(folder);
        else
            (void)trainer.save(folder, keep);
    }
    /// Commits what a thread has written. Collective.
    void finish() { (void)std::exchange(under_way, nullptr)->commit(keep); }
};

}  // namespace lockstep::saving

namespace lockstep {
using saving::checkpoint;
}  // namespace lockstep
