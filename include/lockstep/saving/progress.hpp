// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How far a run is.
// Tested by tests/equivalence/checkpoints.cpp.

#include <cstdint>
#include <limits>
#include <optional>

namespace lockstep::saving {

/// How far a run is.
struct progress {
    std::uint64_t steps = 0;     ///< that are done
    std::uint64_t epoch = 0;     ///< the one that the next step belongs to, from 0
    std::uint64_t position = 0;  ///< samples of it that are done
    std::uint64_t samples = 0;   ///< that were seen in all
    std::uint64_t set = 0;       ///< samples of the data set that `position` counts in; 0: none
    /// Of the epoch: the sum of the losses of its samples that are done; nothing where it is not known.
    std::optional<double> epoch_loss{};
    std::optional<std::uint64_t> loss_samples{};  ///< of which it is the sum; nothing: of `position`
    /// What is known of the epoch with the least loss on a validation set: 0: nothing is.
    std::uint64_t best_epoch = 0;
    double best_loss = std::numeric_limits<double>::infinity();
    std::uint64_t best_step = 0;  ///< steps that were done then; 0: not known
};

}  // namespace lockstep::saving
