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

/// Rank s of a group has stage s: weights, gradients, the state of the optimizer and activations of its layers alone.
/// Lanes are micro-batches, one or several each: a stage gives the output of one to the next stage and computes
/// another; backward of one begins as soon as the last stage is done with it (1F1B with a flush: Narayanan et al. 2021;
/// Huang et al. 2019, GPipe). All of a step see the same weights, and their gradients are added along the lane tree:
/// the bits are those of partition::data. Of M micro-batches a stage waits for (Stages - 1) / (M + Stages - 1) of the
/// time where all stages take equally long; each of them reads all weights of the stage twice and writes its whole
/// gradient, which costs little where it has many rows or the layers are convolutions. Memory: activations of at most
/// Stages - s micro-batches, and log2(M) gradients of the stage beside its own. Communication per step: a value and its
/// gradient at each cut, of each row; beside them, each stage adds its gradients over the groups.
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
