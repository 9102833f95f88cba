// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where the list of layers can be cut into the stages of a pipeline, and where it is.
// Tested by tests/unit/model/stages.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/fusion.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::model {

/// Whether a stage may begin with a layer: nothing but the value of the layer before it is read from there on. Not
/// within a branch or a recompute, nor before a layer that the one before it computes (model/fusion.hpp).
template <class Net>
inline constexpr std::array<bool, Net::size> begins_stage = [] {
    std::array<bool, Net::size> out{};
    constexpr const auto& graph = fusion<Net, 1>::graph;
    // The lowest value that a layer or one after it reads.
    std::size_t lowest = Net::size;
    bool reads_samples = false;
    for (std::size_t layer = Net::size; layer-- > 1;) {
        for (const std::size_t value : graph.of(layer))
            value == the_samples ? void(reads_samples = true) : void(lowest = std::min(lowest, value));
        out[layer] = lowest + 1 == layer && !reads_samples && !fusion<Net, 1>::is_computed_before(layer) &&
                     (graph.block[layer] == 0 || graph.block[layer] != graph.block[layer - 1]);
    }
    return out;
}();

/// The most stages that a network can be cut into.
template <class Net>
inline constexpr std::size_t most_stages = 1 + static_cast<std::size_t>(std::count(begins_stage<Net>.begin(),
                                                                                   begins_stage<Net>.end(), true));

/// What a layer costs in a step beside others: its operations, and a few for each number that it writes.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<double> stage_costs() {
    std::vector<double> out;
    for (const layer_facts& fact : Network::facts)
        out.push_back(fact.flops * (1 + fact.runs_again) +
                      fact.gradient_flops * (fact.learns + (fact.learns && fact.input_learns && fact.parameters > 0)) +
                      8 * static_cast<double>(fact.outputs));
    return out;
}

/// Into how many micro-batches the minibatch of a pipeline is cut best, by a model: of M, stages wait for (stages - 1)
/// / M of the time that they compute, and each reads all weights twice, writes their gradient and adds it to others,
/// some 24 bytes for a parameter, where a core computes 8 operations in the time of a byte. From `stages` to 4
/// `stages`. `flops`: to train on a sample. `rows`: of the pipeline.
[[nodiscard, gnu::cold]] inline std::size_t best_micro_batches(double flops, std::size_t parameters, std::size_t rows,
                                                               std::size_t stages) {
    const double computing = flops * static_cast<double>(rows), each = 8 * 24 * static_cast<double>(parameters);
    const double best = std::sqrt(computing * static_cast<double>(stages - 1) / std::max(each, 1.0));
    return static_cast<std::size_t>(
        std::clamp(std::round(best), static_cast<double>(stages), 4 * static_cast<double>(stages)));
}

/// Layers first .. last - 1 of each stage. `first_layers`: those that the second stage and later ones begin with; all
/// 0: the cut whose dearest stage costs least, the first such. Throws core::error where a stage cannot begin there.
[[nodiscard, gnu::cold]] std::vector<parallel::block> cut_stages(std::span<const double> costs,
                                                                 std::span<const bool> begins,
                                                                 std::span<const std::size_t> first_layers);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::vector<parallel::block> cut_stages(std::span<const double> costs, std::span<const bool> begins,
                                                          std::span<const std::size_t> first_layers) {
    const std::size_t layers = costs.size(), stages = first_layers.size() + 1;
    const auto made_of = [&](std::span<const std::size_t> firsts) {
        std::vector<parallel::block> out;
        for (std::size_t stage = 0; stage < stages; ++stage)
            out.push_back({stage == 0 ? 0 : firsts[stage - 1], stage + 1 == stages ? layers : firsts[stage]});
        return out;
    };
    if (std::ranges::any_of(first_layers, [](std::size_t layer) { return layer != 0; })) {
        std::string places;
        for (std::size_t layer = 1; layer < layers; ++layer)
            if (begins[layer]) places += core::text(places.empty() ? "" : ", ", layer);
        for (std::size_t i = 0; i < first_layers.size(); ++i)
            if (first_layers[i] >= layers || !begins[first_layers[i]] ||
                (i > 0 && first_layers[i] <= first_layers[i - 1]))
                core::fail(core::text("stage ", i + 1, " of a pipeline cannot begin with layer ", first_layers[i],
                                      i > 0 && first_layers[i] <= first_layers[i - 1]
                                          ? core::text(", as stage ", i, " begins with layer ", first_layers[i - 1])
                                          : std::string{}),
                           core::text("name layers of these in ascending order, or none at all: ", places));
        return made_of(first_layers);
    }
    // least[s][l]: of the dearest of s + 1 stages over the layers from l on; first[s][l]: of the second one of these.
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> least(stages, std::vector<double>(layers + 1, never));
    std::vector<std::vector<std::size_t>> first(stages, std::vector<std::size_t>(layers + 1, layers));
    double sum = 0;
    for (std::size_t layer = layers; layer-- > 0;) least[0][layer] = sum += costs[layer];
    for (std::size_t more = 1; more < stages; ++more)
        for (std::size_t from = 0; from < layers; ++from) {
            double here = 0;
            for (std::size_t next = from + 1; next < layers; ++next) {
                here += costs[next - 1];
                if (!begins[next]) continue;
                const double dearest = std::max(here, least[more - 1][next]);
                if (dearest < least[more][from]) {
                    least[more][from] = dearest;
                    first[more][from] = next;
                }
            }
        }
    std::vector<std::size_t> firsts;
    for (std::size_t more = stages - 1, at = 0; more > 0; --more) firsts.push_back(at = first[more][at]);
    return made_of(firsts);
}

#endif

}  // namespace lockstep::model
