// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Saves a run now and then: an observer.
// Tested by tests/equivalence/checkpoints.cpp.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::saving {

/// checkpoint{"runs/a", 500, 2}: writes runs/a/step-N after every 500th step of the run, and where a signal ends it,
/// and keeps the newest two. Go on with trainer.resume("runs/a"). Cost, for each of them: trainer.save().
struct checkpoint {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;

    std::string folder;
    std::uint64_t every = 1000;  ///< steps
    std::size_t keep = 2;        ///< 0: all of them

    void on_begin() const {
        if (folder.empty()) core::fail("a checkpoint has no folder", "name one: checkpoint{\"runs/a\"}");
        if (every == 0)
            core::fail("checkpoints after every 0th step were asked for", "take a number of steps such as 1000");
    }
    template <class Trainer>
    void on_step(Trainer& trainer, const report::step_event& event) const {
        if (event.step % every == 0 || event.stop_signal != 0) (void)trainer.save(folder, keep);
    }
};

}  // namespace lockstep::saving

namespace lockstep {
using saving::checkpoint;
}  // namespace lockstep
