// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Hybrid parallelism: replicas of model groups, written from the slowest link to the fastest. Models Partition.

#include <cstddef>
#include <string_view>

#include "lockstep/partition/concept.hpp"

namespace lockstep::partition {

/// hybrid{data{}, model<2>{}}: groups of two ranks share the dense layers; gradients of a shard are averaged over the groups, those of all
/// other layers over all ranks (Das et al. 2016).
template <Partition Outer, Partition Inner>
struct hybrid {
    static_assert(Outer::shards == 1 && Outer::replicates, "lockstep: the first member of a hybrid partition is data{}; write hybrid{data{}, model<2>{}}");
    constexpr hybrid() = default;
    constexpr hybrid(Outer, Inner) {}
    static constexpr std::size_t shards = Inner::shards;
    static constexpr std::size_t stages = Inner::stages;
    static constexpr bool replicates = true;
    static constexpr std::string_view name = "hybrid";
};

}  // namespace lockstep::partition
