// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The choice of algorithms and micro-batches of all convolutions of a network from the times of their kernels (Oyama et
// al. 2018).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/convolution/algorithm_choice.hpp"
#include "lockstep/planner/algorithm_file.hpp"
#include "lockstep/planner/micro_batch.hpp"
#include "lockstep/planner/workspace.hpp"

namespace lockstep::planner {

/// An algorithm of one pass of one convolution, with the runs that were measured: that of all samples among them.
/// Scratch in bytes.
struct measured_algorithm {
    kernels::algorithm which = kernels::algorithm::direct;
    std::vector<kernel_run> runs;
};

/// One pass of one convolution.
struct measured_pass {
    std::size_t layer = 0;  ///< index in the list of convolutions
    kernels::convolution_pass pass = kernels::convolution_pass::forward;
    kernels::algorithm by_rule = kernels::algorithm::direct;  ///< what the default rule picks; it is measured too
    std::vector<measured_algorithm> algorithms;
};

/// What the scratch of the passes is.
enum class workspace {
    reuse,    ///< one after the other in the same memory, as in a trainer: the limit is that of each pass
    division  ///< each has its own: the limit is that of all together
};

struct chosen_pass {
    std::size_t layer = 0;
    kernels::convolution_pass pass = kernels::convolution_pass::forward;
    kernels::pass_choice choice{};
    double seconds = 0;  ///< of a minibatch
    std::size_t scratch = 0;
    kernels::algorithm by_rule = kernels::algorithm::direct;
    double rule_seconds = 0;
    std::size_t rule_scratch = 0;
};

/// The runs of a division in the order in which a layer takes them: those of the most frequent length last, where they
/// are repeated.
[[nodiscard]] inline kernels::micro_batches to_micro_batches(const division& of) {
    kernels::micro_batches out;
    if (of.runs.size() < 2) return out;
    std::size_t repeated = of.runs[0], most = 0;
    for (const std::size_t run : of.runs) {
        const auto times = static_cast<std::size_t>(std::count(of.runs.begin(), of.runs.end(), run));
        if (times >= most) std::tie(repeated, most) = std::pair{run, times};
    }
    // More different runs than there is room for are left to the repeated one: no bit depends on it.
    for (const std::size_t run : of.runs)
        if (run != repeated && out.count + 1 < out.capacity) out.runs[out.count++] = static_cast<std::uint32_t>(run);
    out.runs[out.count++] = static_cast<std::uint32_t>(repeated);
    return out;
}

/// All rows of a pass have one algorithm, so an output still depends on its sample alone. Micro-batches of forward
/// and data gradient change no bit, weight gradients are never divided. A tuner measures once and writes a file; no
/// run decides anything by the clock.
/// The algorithm and division of each pass with the least time within the limit, in bytes; by workspace reuse each pass
/// for itself, by division all together. What the default rule picks, undivided, is taken to be faster by the share
/// `margin` than it was measured: a change has to pay. Throws core::error where the limit is too small.
[[nodiscard]] inline std::vector<chosen_pass> choose_algorithms(std::span<const measured_pass> measured,
                                                                std::size_t samples, std::size_t limit, workspace use,
                                                                double margin) {
    struct candidate {
        kernels::algorithm which;
        division runs;
    };
    std::vector<std::vector<candidate>> candidates(measured.size());
    std::vector<std::vector<variant>> variants(measured.size());
    std::vector<chosen_pass> out(measured.size());
    std::size_t least_of_all = 0;
    for (std::size_t i = 0; i < measured.size(); ++i) {
        const measured_pass& of = measured[i];
        out[i] = {.layer = of.layer, .pass = of.pass, .by_rule = of.by_rule};
        std::size_t least = SIZE_MAX;
        for (const measured_algorithm& algorithm : of.algorithms) {
            std::vector<kernel_run> runs = algorithm.runs;
            if (algorithm.which == of.by_rule)
                for (kernel_run& run : runs)
                    if (run.samples == samples) {
                        out[i].rule_seconds = run.seconds;
                        out[i].rule_scratch = run.scratch;
                        run.seconds *= 1 - margin;
                    }
            for (division& found : desirable_divisions(samples, runs)) {
                least = std::min(least, found.scratch);
                variants[i].push_back({found.seconds, found.scratch});
                candidates[i].push_back({algorithm.which, std::move(found)});
            }
        }
        if (use != workspace::division && least > limit)
            core::fail(core::text("the ", name(of.pass), " pass of convolution ", of.layer, " needs ", least,
                                  " bytes of scratch at least, the limit is ", limit),
                       "raise the limit");
        least_of_all += least;
    }
    const auto take = [&](std::size_t i, std::size_t which) {
        const candidate& best = candidates[i][which];
        out[i].choice = {best.which, to_micro_batches(best.runs)};
        const bool is_default = best.which == out[i].by_rule && best.runs.runs.size() < 2;
        out[i].seconds = is_default ? out[i].rule_seconds : best.runs.seconds;
        out[i].scratch = best.runs.scratch;
    };
    if (use == workspace::reuse) {
        for (std::size_t i = 0; i < measured.size(); ++i) {
            std::optional<std::size_t> best;
            for (std::size_t which = 0; which < variants[i].size(); ++which)
                if (variants[i][which].scratch <= limit &&
                    (!best || variants[i][which].seconds < variants[i][*best].seconds))
                    best = which;
            take(i, *best);
        }
    } else {
        const auto best = divide_workspace(variants, limit);
        if (!best)
            core::fail(core::text("all passes together need ", least_of_all,
                                  " bytes of scratch at least, the limit is ", limit),
                       "raise the limit");
        for (std::size_t i = 0; i < measured.size(); ++i) take(i, best->chosen[i]);
    }
    return out;
}

/// By layer, for write_algorithms().
[[nodiscard]] inline std::vector<kernels::convolution_choice> by_layer(std::span<const chosen_pass> chosen,
                                                                       std::size_t layers) {
    std::vector<kernels::convolution_choice> out(layers);
    for (const chosen_pass& one : chosen) out[one.layer][one.pass] = one.choice;
    return out;
}

}  // namespace lockstep::planner
