// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Data parallelism: every rank has the whole network and a part of the samples. Models Partition.
// Tested by tests/unit/partition/grid.cpp.

#include <cstddef>
#include <string_view>

namespace lockstep::partition {

/// Communication per step: the gradients, 2 (p-1)/p of the parameters on each rank.
struct data {
    static constexpr std::size_t shards = 1;
    static constexpr std::size_t stages = 1;
    static constexpr bool replicates = true;
    static constexpr std::string_view name = "data";
};

}  // namespace lockstep::partition
