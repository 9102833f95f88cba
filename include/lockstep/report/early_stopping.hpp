// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ends a run that gets no better: an observer.
// Tested by tests/training/early_stopping.cpp.

#include <any>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// early_stopping{.patience = 5}, named after validate{set}: ends a fit() when the loss on that set has not fallen by
/// more than `least` for so many epochs (Prechelt 1998). With keep_best the weights of the best epoch come back at the
/// end of the fit(); the optimizer's state stays that of the last step. Cost: a copy of all weights on every rank for
/// each epoch that is the best so far.
struct early_stopping {
    static constexpr bool on_every_rank = true;  ///< it looks at all weights

    std::size_t patience = 5;  ///< epochs
    bool keep_best = true;     ///< whether the weights of the best epoch come back
    double least = 0;          ///< by how much the loss has to fall

    /// Of the best epoch.
    double best_loss = std::numeric_limits<double>::infinity();
    std::uint64_t best_epoch = 0;  ///< its number, from 1

    /// Throws core::error for a patience of 0.
    void on_begin() {
        waited_ = 0;
        if (patience == 0)
            core::fail("early_stopping has a patience of 0 epochs", "take the number of epochs without a better loss");
    }
    /// False ends the run. Throws core::error where no validate{set} is named before it. Collective.
    template <class Trainer>
    [[nodiscard]] bool on_epoch(Trainer& trainer, const epoch_event& event) {
        if (!event.test)
            core::fail("early_stopping knows no loss on a validation set", "name validate{set} before it in fit()");
        if (event.test->loss < best_loss - least) {
            best_loss = event.test->loss;
            best_epoch = event.epoch;
            waited_ = 0;
            if (keep_best) keep(trainer);
        } else {
            ++waited_;
        }
        return waited_ < patience;
    }
    /// Takes back the best weights. Collective.
    template <class Trainer>
    void on_end(Trainer& trainer, const totals&) {
        using weights = kept<typename Trainer::value_type>;
        if (const auto* best = std::any_cast<weights>(&best_); best != nullptr && waited_ > 0)
            trainer.load_weights(best->all, best->statistics);
    }

    /// What it keeps for itself.
    template <class T>
    struct kept {
        std::vector<T> all;         ///< weights
        std::vector<T> statistics;  ///< running statistics
    };
    std::any best_{};         ///< its own
    std::size_t waited_ = 0;  ///< its own

    /// Copies the weights. Collective.
    template <class Trainer>
    void keep(Trainer& trainer) {
        const auto statistics = trainer.running_statistics();
        best_ = kept<typename Trainer::value_type>{trainer.all_weights(), {statistics.begin(), statistics.end()}};
    }
};

}  // namespace lockstep::report

namespace lockstep {
using report::early_stopping;
}  // namespace lockstep
