// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pipeline parallelism: each rank of a group has a run of the layers, and micro-batches go through them one after the
// other. Models Partition.
// Tested by tests/equivalence/pipeline.cpp.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/text.hpp"

namespace lockstep::partition {

/// Rank s of a group has stage s: weights, gradients, the state of the optimizer and activations of its layers alone.
/// The minibatch goes through the stages in M micro-batches, of one or several lanes each. A stage gives the output of
/// one to the next stage and computes another; backward of one begins when the last stage has its loss (1F1B with a
/// flush: Narayanan et al. 2021; GPipe: Huang et al. 2019). All of a step see the same weights. Their gradients are
/// added along the lane tree, so the bits are those of partition::data.
/// Time: a stage waits for (Stages - 1) / (M + Stages - 1) of it where all stages take equally long. A micro-batch
/// reads all weights of the stage twice and writes its whole gradient, which costs little beside convolutions or many
/// rows. Memory: activations of at most Stages - s micro-batches, and log2(M) gradients of the stage beside its own.
/// Communication per step: for each row a value and its gradient at each cut. Each stage adds its gradients over the
/// groups.
template <std::size_t Stages>
struct pipeline {
    static_assert(Stages > 0, "lockstep: a pipeline has at least one stage");
    static constexpr std::size_t shards = 1;
    static constexpr std::size_t stages = Stages;
    static constexpr bool replicates = false;
    static constexpr std::string_view name = "pipeline";

    /// Numbers of the layers that the second stage and all after it begin with, as in the summary. All 0: stages that
    /// take about equally long, by the operations of the layers. No bit depends on them.
    std::array<std::size_t, Stages == 0 ? 0 : Stages - 1> first_layers{};
    /// The most micro-batches of a minibatch, each a power of two of lanes. 0: by the operations and weights of the
    /// network, from `Stages` to 4 `Stages`. No bit depends on it.
    std::size_t micro_batches = 0;

    /// For the text of a machine.
    [[nodiscard]] std::string settings() const {
        std::string out = core::text(Stages, " stages");
        if (first_layers != decltype(first_layers){})
            for (const std::size_t layer : first_layers) out += core::text(", from layer ", layer);
        if (micro_batches > 0) out += core::text(", up to ", micro_batches, " micro-batches");
        return out;
    }
};

}  // namespace lockstep::partition
