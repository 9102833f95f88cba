// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Ends a run that gets no better: an observer.
// Tested by tests/training/early_stopping.cpp.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// early_stopping{.patience = 5}, named after validate{set}: ends a fit() when the loss on that set has not fallen by
/// more than `least` for so many epochs (Prechelt 1998). early_stopping{.monitor = "accuracy", .larger_is_better =
/// true} looks at the accuracy, or at a metric of validate{set, metrics}, which has to rise. With keep_best the weights
/// of the best epoch come back at the end of the fit(); the optimizer's state stays that of the last step. One object
/// goes on counting in further fits of a trainer, and begins anew with another trainer. What it knows is in
/// checkpoints: a run that is resumed with the same monitor ends where it would have ended. Cost: a copy of the weights
/// on every rank.
struct early_stopping {
    static constexpr bool on_every_rank = true;     ///< it looks at all weights
    static constexpr bool gathers_first = true;     ///< nothing at the beginning
    static constexpr bool needs_validation = true;  ///< of one that is named before it
    static constexpr bool changes_weights = true;   ///< at the end, to the best ones

    std::size_t patience = 5;       ///< epochs
    bool keep_best = true;          ///< whether the weights of the best epoch come back
    double least = 0;               ///< by how much the loss has to fall
    std::string monitor = "loss";   ///< or the name of a metric, such as accuracy
    bool larger_is_better = false;  ///< of what it looks at

    /// Of the best epoch: what it looks at, negated where larger is better.
    double best_loss = std::numeric_limits<double>::infinity();
    std::uint64_t best_epoch = 0;  ///< its number, from 1

    /// Takes over what a checkpoint has of the run. False where the run had ended there. Throws core::error for a
    /// patience of 0, and a `least` below 0 or not finite.
    template <class Trainer>
    [[nodiscard]] bool on_begin(Trainer& trainer, const run_begin& from) {
        if (patience == 0)
            core::fail("early_stopping has a patience of 0 epochs", "take the number of epochs without a better loss");
        if (!(least >= 0 && least < std::numeric_limits<double>::infinity()))
            core::fail(core::text("early_stopping has least = ", least, ", no finite number from 0 on"),
                       "take by how much the loss has to fall, or leave it out");
        const bool rises = monitor == "accuracy" || monitor == "top_k" || monitor == "r_squared";
        const bool falls = monitor == "loss" || monitor == "max_error";
        if (larger_is_better ? falls : rises)
            core::fail(
                core::text("early_stopping looks at the ", monitor, ", and larger_is_better is ", larger_is_better),
                core::text(rises ? "set .larger_is_better = true for the " : "leave .larger_is_better out for the ",
                           monitor));
        is_past_ = from.is_past;
        if (is_past_) return true;           // what the checkpoint has is of a later part of the run
        if (is_used_ && from.run != run_) {  // another trainer, which has seen nothing of it
            best_loss = std::numeric_limits<double>::infinity();
            best_epoch = resumes_ = 0;
            is_used_ = false;
        }
        run_ = from.run;
        // What the checkpoint has: a new object takes it over with the first fit(), one that has seen later epochs
        // forgets these.
        const bool is_undone = from.undoes(resumes_) && is_used_;
        const bool takes_over = is_undone || (!is_used_ && from.is_first && from.resumed_after > 0);
        if (takes_over && trainer.best_epoch() > 0)
            counts_from_ = 0;
        else if (takes_over || !is_used_)
            counts_from_ = from.epochs;
        else if (from.epochs > epoch_)  // epochs that it was not told of
            counts_from_ = from.epochs - waited();
        is_used_ = true;
        if (takes_over) {
            best_loss = trainer.best_epoch() > 0 ? trainer.best_loss() : std::numeric_limits<double>::infinity();
            best_epoch = trainer.best_epoch();
            const std::uint64_t step = trainer.best_step();
            best_steps_ = step > 0                                         ? step
                          : best_epoch == from.epochs && !from.is_in_epoch ? from.resumed_after
                                                                           : not_known;
            if (keep_best && best_epoch > 0 && !trainer.keeps_best()) take_over_weights(trainer, from);
        }
        epoch_ = from.epochs;
        return waited() < patience;
    }
    /// False ends the run. Throws core::error where no validate{set} is named before it. Collective.
    template <class Trainer>
    [[nodiscard]] bool on_epoch(Trainer& trainer, const epoch_event& event) {
        if (!event.test)
            core::fail("early_stopping knows no loss on a validation set", "name validate{set} before it in fit()");
        epoch_ = event.epoch;
        const double found = monitor == "loss" ? event.test->loss : (*event.test)[monitor];
        if (const double value = larger_is_better ? -found : found; value < best_loss - least) {
            best_loss = value;
            best_epoch = event.epoch;
            best_steps_ = trainer.weights_state().steps;
            trainer.remember_best(best_epoch, best_loss, keep_best);
        }
        return waited() < patience;
    }
    /// Takes back the best weights, if steps were made since. Collective.
    template <class Trainer>
    void on_end(Trainer& trainer, const totals& run) {
        if (!is_past_ && keep_best && best_epoch > 0 && run.steps != best_steps_ &&
            trainer.best_epoch() == best_epoch && trainer.keeps_best())
            trainer.load_best();
    }

    /// Epochs without a better loss, of those that it was told of.
    [[nodiscard]] std::uint64_t waited() const noexcept {
        const std::uint64_t from = best_epoch > counts_from_ ? best_epoch : counts_from_;
        return epoch_ > from ? epoch_ - from : 0;
    }
    std::uint64_t counts_from_ = 0;  ///< its own
    std::uint64_t resumes_ = 0;      ///< its own
    std::uint64_t run_ = 0;          ///< its own
    bool is_used_ = false;           ///< its own
    std::uint64_t epoch_ = 0;        ///< its own
    bool is_past_ = false;           ///< its own
    std::uint64_t best_steps_ = 0;   ///< its own: steps of the run that have made the best weights

private:
    static constexpr std::uint64_t not_known = std::numeric_limits<std::uint64_t>::max();

    /// A run that is resumed kept no weights: those of now are the best ones, or are gone.
    template <class Trainer>
    [[gnu::cold]] void take_over_weights(Trainer& trainer, const run_begin& from) const {
        if (best_steps_ != from.steps || from.steps != from.resumed_after)
            core::fail(core::text("the checkpoint knows that epoch ", best_epoch,
                                  " is the best one, and not its weights: it was written with keep_best = false"),
                       "leave .keep_best = false, or begin with another folder");
        trainer.remember_best(best_epoch, best_loss, true);
    }
};

}  // namespace lockstep::report

namespace lockstep {
using report::early_stopping;
}  // namespace lockstep
