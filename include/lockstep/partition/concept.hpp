// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concept Partition: into how many shards and stages a network is cut. Replicas are what the ranks then leave.

#include <array>
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
    requires(P::shards > 0 && P::stages > 0);
    { P::replicates } -> std::convertible_to<bool>;
    { P::name } -> std::convertible_to<std::string_view>;
};

/// What cuts the network: the second member of a hybrid partition, else the partition itself.
template <Partition P>
[[nodiscard]] constexpr const auto& cutting_part(const P& of) noexcept {
    if constexpr (requires { of.inner; })
        return of.inner;
    else
        return of;
}
/// Layers that the second stage of a pipeline and those after it begin with; all 0: to be chosen.
template <Partition P>
[[nodiscard]] constexpr std::array<std::size_t, P::stages - 1> first_layers_of(const P& of) noexcept {
    using layers = std::array<std::size_t, P::stages - 1>;
    if constexpr (requires {
                      { cutting_part(of).first_layers } -> std::convertible_to<layers>;
                  })
        return cutting_part(of).first_layers;
    else
        return {};
}
/// The most micro-batches of a pipeline; 0: to be chosen.
template <Partition P>
[[nodiscard]] constexpr std::size_t micro_batches_of(const P& of) noexcept {
    if constexpr (requires {
                      { cutting_part(of).micro_batches } -> std::convertible_to<std::size_t>;
                  })
        return cutting_part(of).micro_batches;
    else
        return 0;
}

}  // namespace lockstep::partition
