// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concept Partition: into how many shards and stages a network is cut. Replicas are what the ranks then leave.

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::partition {

/// `shards` = ranks of a model group, `stages` = ranks of a pipeline, both known to the compiler. `replicates` says
/// whether several copies of the network may work on different samples.
template <class P>
concept Partition = requires {
    { P::shards } -> std::convertible_to<std::size_t>;
    { P::stages } -> std::convertible_to<std::size_t>;
    { P::replicates } -> std::convertible_to<bool>;
    { P::name } -> std::convertible_to<std::string_view>;
};

}  // namespace lockstep::partition
