// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The settings of compression that is chosen for each layer while a run goes on, from measured times. What does it:
// sync/adaptive.hpp, which a program includes.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/choice_list.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/candidate.hpp"
#include "lockstep/compress/parts/one_of.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// plan::compressor = adaptive{}: each layer has the candidate with which the step is predicted to be shortest, or is
/// dense; neighbours, from the last to the first, share a choice until they have `least_numbers` parameters together.
/// These are the buckets of the run, whatever plan::bucket is. Dense costs what it costs without a compressor: owners
/// of strips add, update and hand out. Layers begin dense. After steps 3, 12, 50 and 200, then every `period` steps,
/// from the third time on at most so often that it takes 1 % of the run, and where steps take half as long again as
/// after the last decision, or two thirds (looked at every 64 steps; 5 % of the run at most): each candidate encodes
/// and decodes pieces of the gradient of each rank, links are measured again, and a model of the step (backward, link,
/// update, forward) says what each choice would take, on all ranks alike. Another choice is made where it saves
/// `margin`, early in a run 30 %. Ten steps later (more where they are short, for 30 ms, 30 at most) the measured step
/// has to be shorter than before, or the change is taken back. What hidden messages take from the core that computes is
/// seen by one attempt of as many steps with the least messages that could pay; then up to three candidates everywhere
/// that are predicted to take at most a quarter of a step more than the choice, or a whole one where dense would take
/// longer still, are tried as well, for as many steps each. A candidate is not chosen where |g - decoded| > max_error
/// |g| on some rank; in a critical phase of the layer (the norm of its gradient has changed by critical_change since
/// the last decision, or there was none) where it is > critical_error |g|. Around all candidates is one error feedback:
/// p = g + e, e = p - decoded. They keep no state for workers. When a layer becomes dense, its p travels whole in one
/// step. When one is compressed again, ranks gather the slots of the optimizer. The bits of a run follow from the list
/// of choices (trainer.compression_choices()), which `replay` repeats, on any number of ranks. Sources: "On the utility
/// of gradient compression" (Agarwal et al., MLSys 2022) for when it pays; Seide et al. (Interspeech 2014) for error
/// feedback; "Accordion" (Agarwal et al., MLSys 2021) for critical phases, there by norms of gradients that are summed
/// over epochs.
struct adaptive {
    /// Candidate 1, 2, ..; 0 is dense.
    std::vector<candidate> candidates = usual_candidates();
    std::uint64_t period = 1'000;                       ///< steps
    double max_error = 0.98;                            ///< relative to the norm of the gradient
    double critical_error = 0.98;                       ///< in place of max_error in critical phases, where it is less
    double critical_change = 0.5;                       ///< of the norm, relative, that makes a phase critical
    double margin = 0.02;                               ///< share of the step that another choice has to save
    std::size_t least_numbers = std::size_t{1} << 16U;  ///< parameters that share a choice, at least
    std::optional<choice_list> replay{};                ///< in place of measured choices
    std::function<void(std::string_view)> tell{};       ///< on rank 0: a line for each decision
    compress::statistics* statistics = nullptr;         ///< of what candidates send, as for compress::measured

    static constexpr std::string_view name = "adaptive";
    static constexpr bool is_adaptive = true;
    static constexpr std::size_t slot_count = 1;
    /// More is a mistake.
    static constexpr std::size_t most_candidates = 255;

    [[nodiscard, gnu::cold]] std::string settings() const {
        const std::string which = replay ? core::hexadecimal(core::hash(replay->text())) : std::string{"measured"};
        std::string all = any{none{}}.settings();
        for (const candidate& one : candidates) all += core::text(", ", one.settings());
        return core::text("candidates=", all, " least_numbers=", least_numbers, " choices=", which,
                          " version=2");  // of buckets and residuals
    }
    /// What decisions depend on, beside what is measured.
    [[nodiscard, gnu::cold]] std::string decision_settings() const {
        return core::text("period=", period, " max_error=", max_error, " critical_error=", critical_error,
                          " critical_change=", critical_change, " margin=", margin);
    }
    /// 8 and 4 bits, 10 % and 1 %, rank 2, signs, 1 % in 4 bits.
    [[nodiscard, gnu::cold]] static std::vector<candidate> usual_candidates() {
        return {quantize{.bits = 8},
                quantize{.bits = 4},
                top_k{.ratio = 0.1},
                top_k{.ratio = 0.01},
                power_sgd{.rank = 2},
                scaled_sign{},
                chain{top_k{.ratio = 0.01}, quantize{.bits = 4}}};
    }
    /// Dense, then the candidates that are compressors.
    [[nodiscard, gnu::cold]] one_of as_one() const {
        one_of out{.candidates = {any{none{}}}};
        for (const candidate& one : sending())
            if (one.compressor() != nullptr) out.candidates.push_back(*one.compressor());
        return out;
    }
    /// The candidates, as their messages are made.
    [[nodiscard, gnu::cold]] std::vector<candidate> sending() const {
        std::vector<candidate> out = candidates;
        if (statistics != nullptr)
            for (candidate& one : out) one = one.counted(statistics);
        return out;
    }
    /// Of a bucket whose gradient had the norm `before` at the last decision (negative: there was none), and has `now`.
    [[nodiscard, gnu::cold]] bool is_critical(double before, double now) const noexcept {
        const bool is_same = before == 0 && now == 0;
        return critical_error < max_error &&
               !(is_same || (before >= 0 && std::abs(before - now) < critical_change * before));
    }
    /// As in `dense` or `top_k(ratio=0.01)`.
    [[nodiscard, gnu::cold]] std::string name_of(std::size_t candidate) const {
        return candidate == 0 ? std::string{"dense"} : candidates.at(candidate - 1).settings();
    }
    /// Throws core::error.
    [[gnu::cold]] void check() const {
        if (candidates.empty()) core::fail("adaptive has no candidates", "name some, or use compress::none");
        if (candidates.size() > most_candidates)
            core::fail(core::text("adaptive has ", candidates.size(), " candidates"),
                       core::text("use at most ", most_candidates));
        for (const candidate& one : candidates) one.check();
        if (period == 0) core::fail("adaptive has a period of 0 steps", "give at least 1");
        if (least_numbers == 0) core::fail("adaptive has least_numbers = 0", "give at least 1");
        if (!(max_error >= 0))
            core::fail(core::text("adaptive has max_error = ", max_error), "give a number from 0 on");
        if (!(critical_error >= 0))
            core::fail(core::text("adaptive has critical_error = ", critical_error), "give a number from 0 on");
        if (!(critical_change >= 0))
            core::fail(core::text("adaptive has critical_change = ", critical_change), "give a number from 0 on");
        if (!(margin >= 0 && margin < 1))
            core::fail(core::text("adaptive has margin = ", margin), "give a share of the step in [0, 1)");
        if (!replay) return;
        replay->check();
        for (const auto& one : replay->entries)
            if (one.candidate > candidates.size())
                core::fail(core::text("the list of choices has candidate ", one.candidate, " in step ", one.step,
                                      ", and there are ", candidates.size()),
                           "give adaptive the candidates of the run that the list is from");
    }
};

}  // namespace lockstep::compress
