// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Micro-batches: how a minibatch is divided into runs of one kernel, in the least time within a limit of scratch (Oyama
// et al. 2018).

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::planner {

/// A kernel that takes so many samples at once: measured, or from a model.
struct kernel_run {
    std::size_t samples = 0;
    double seconds = 0;
    std::size_t scratch = 0;
};

/// A minibatch in runs, one after the other in the same scratch.
struct division {
    std::vector<std::size_t> runs;  ///< samples of each, in ascending order
    double seconds = 0;             ///< of all
    std::size_t scratch = 0;        ///< of the run that needs most

    friend bool operator==(const division&, const division&) = default;
};

/// The fastest division of `samples` into the runs on offer, each as often as is needed, that need at most `limit` of
/// scratch: workspace reuse of mu-cuDNN. T(b) = min over runs r of t(r) + T(b - samples of r). None where no runs add
/// up. Cost: samples x runs.
[[nodiscard]] inline std::optional<division> fastest_division(std::size_t samples, std::span<const kernel_run> on_offer,
                                                              std::size_t limit) {
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<double> least(samples + 1, never);
    std::vector<const kernel_run*> last(samples + 1);
    least[0] = 0;
    for (std::size_t b = 1; b <= samples; ++b)
        for (const kernel_run& run : on_offer) {
            if (run.samples == 0 || run.samples > b || run.scratch > limit) continue;
            const double time = run.seconds + least[b - run.samples];
            // Of equal times the one with the longer runs.
            if (time < least[b] || (time == least[b] && last[b] && run.samples > last[b]->samples)) {
                least[b] = time;
                last[b] = &run;
            }
        }
    if (least[samples] == never) return std::nullopt;
    division out{.runs = {}, .seconds = least[samples]};
    for (std::size_t b = samples; b > 0; b -= last[b]->samples) {
        out.runs.push_back(last[b]->samples);
        out.scratch = std::max(out.scratch, last[b]->scratch);
    }
    std::sort(out.runs.begin(), out.runs.end());
    return out;
}

/// The desirable divisions (mu-cuDNN): those for which no other one needs as little scratch and as little time. Scratch
/// rises and time falls from one to the next. A division needs the scratch of one of its runs, so one limit for each of
/// them finds all.
[[nodiscard]] inline std::vector<division> desirable_divisions(std::size_t samples,
                                                               std::span<const kernel_run> on_offer) {
    std::vector<std::size_t> limits;
    for (const kernel_run& run : on_offer) limits.push_back(run.scratch);
    std::sort(limits.begin(), limits.end());
    limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
    std::vector<division> out;
    for (const std::size_t limit : limits) {
        auto found = fastest_division(samples, on_offer, limit);
        if (found && (out.empty() || found->seconds < out.back().seconds)) out.push_back(std::move(*found));
    }
    return out;
}

}  // namespace lockstep::planner
