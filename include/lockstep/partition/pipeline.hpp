// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pipeline parallelism: each rank of a group has a run of the layers, and the lanes of the minibatch go through them
// one after the other. Models Partition.
// Tested by tests/equivalence/pipeline.cpp.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/text.hpp"

namespace lockstep::partition {

/// Rank s of a group has stage s: gradients, the state of the optimizer and activations of its layers alone. A lane is
/// a micro-batch: a stage gives its output to the next one, and computes the next lane; backward goes the other way, of
/// a lane as soon as its last stage is done (one forward, one backward: Narayanan et al. 2019, PipeDream-Flush; Huang
/// et al. 2019, GPipe). All lanes of a step see the same weights: the bits are those of partition::data. Of M lanes of
/// a group, a stage waits for (Stages - 1) / (M + Stages - 1) of the time where all stages take equally long; it keeps
/// the activations of at most Stages - s lanes. Communication per step: a value and its gradient at each cut, of each
/// row; beside them, each stage adds its gradients over the groups.
template <std::size_t Stages>
struct pipeline {
    static_assert(Stages > 0, "lockstep: a pipeline has at least one stage");
    static constexpr std::size_t shards = 1;
    static constexpr std::size_t stages = Stages;
    static constexpr bool replicates = false;
    static constexpr std::string_view name = "pipeline";

    /// Numbers of the layers that the second stage and all after it begin with, as in the summary. All 0: stages that
    /// take about equally long, by the operations of the layers. No bit depends on them.
    std::array<std::size_t, Stages - 1> first_layers{};

    /// For the text of a machine.
    [[nodiscard]] std::string settings() const {
        std::string out = core::text(Stages, " stages");
        if (first_layers != std::array<std::size_t, Stages - 1>{})
            for (const std::size_t layer : first_layers) out += core::text(", from layer ", layer);
        return out;
    }
};

}  // namespace lockstep::partition
