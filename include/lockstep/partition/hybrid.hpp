// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Hybrid parallelism: replicas of model groups, written from the slowest link to the fastest. Models Partition.
// Tested by tests/unit/partition/grid.cpp.

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/partition/concept.hpp"
#include "lockstep/partition/data.hpp"

namespace lockstep::partition {

/// Before a hybrid partition stand the replicas.
template <class Outer>
inline constexpr bool is_outer = false;
template <Partition Outer>
inline constexpr bool is_outer<Outer> = Outer::shards == 1 && Outer::stages == 1 && Outer::replicates;
/// After them stands what cuts the network.
template <class Inner>
inline constexpr bool is_inner = Partition<Inner>;
/// What a hybrid partition goes on with where its second member is none.
template <class Inner>
using inner_part = std::conditional_t<is_inner<Inner>, Inner, data>;

/// hybrid{data{}, model<2>{}}: groups of two ranks share the dense layers; gradients of a shard are averaged over the
/// groups, those of all other layers over all ranks (Das et al. 2016). hybrid{data{}, pipeline<2>{}}: groups of two
/// ranks are a pipeline each; gradients of a stage are averaged over the groups.
template <class Outer, class Inner>
struct hybrid {
    static_assert(is_outer<Outer>,
                  "lockstep: the first member of a hybrid partition is data{}; write hybrid{data{}, model<2>{}}");
    static_assert(is_inner<Inner>,
                  "lockstep: the second member of a hybrid partition is model<Shards>{} or pipeline<Stages>{}; write "
                  "hybrid{data{}, model<2>{}}");
    constexpr hybrid() = default;
    constexpr hybrid(Outer, Inner with) : inner{with} {}
    static constexpr std::size_t shards = inner_part<Inner>::shards;
    static constexpr std::size_t stages = inner_part<Inner>::stages;
    static constexpr bool replicates = true;
    static constexpr std::string_view name = "hybrid";

    [[no_unique_address]] Inner inner{};  ///< what cuts the network

    /// Those of what cuts the network, if it has any.
    [[nodiscard]] std::string settings() const {
        if constexpr (requires { std::string{inner.settings()}; }) return inner.settings();
        return {};
    }
};

}  // namespace lockstep::partition
