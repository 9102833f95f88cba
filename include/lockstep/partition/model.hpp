// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Model parallelism: dense layers are cut over one group of ranks; the other layers are data-parallel inside it. Models
// Partition.
// Tested by tests/unit/partition/grid.cpp.

#include <cstddef>
#include <string_view>

namespace lockstep::partition {

/// Each rank has 1/Shards of the outputs of every dense layer and computes them for all samples; activations are
/// redistributed before a dense layer, gradients of activations after it. Pays where a layer has more outputs than the
/// minibatch has samples (Das et al. 2016, arXiv:1602.06709).
template <std::size_t Shards>
struct model {
    static_assert(Shards > 0, "lockstep: a model partition has at least one shard");
    static constexpr std::size_t shards = Shards;
    static constexpr std::size_t stages = 1;
    static constexpr bool replicates = false;
    static constexpr std::string_view name = "model";
};

}  // namespace lockstep::partition
