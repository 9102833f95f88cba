// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The convolutions of a network, for a choice of their algorithms.
// Tested by tests/unit/planner/measure_convolution.cpp.

#include <vector>

#include "lockstep/model/network.hpp"
#include "lockstep/planner/algorithm_file.hpp"

namespace lockstep::planner {

/// A layer with the geometry of a convolution.
template <class Layer>
inline constexpr bool is_convolution = requires {
    kernels::convolution{Layer::geometry};
};
/// The spec of a layer that takes its algorithms from a file: its value holds them.
template <class Spec>
inline constexpr bool is_tuned = requires(Spec& spec) {
    spec.chosen.choice = kernels::convolution_choice{};
};

/// Whether a network has layers that take their algorithms from a file.
template <class Net, class Indices = std::make_index_sequence<Net::size>>
inline constexpr bool has_tuned_layers = false;
template <class Net, std::size_t... Index>
inline constexpr bool has_tuned_layers<Net, std::index_sequence<Index...>> =
    (is_tuned<typename Net::template spec<Index>> || ...);

/// All convolutions of a network, or those that take their algorithms from a file, in the order of the layers.
template <class Net>
[[nodiscard, gnu::cold]] std::vector<convolution_layer> convolutions(bool only_tuned = false) {
    using network = model::network<Net, 1>;
    std::vector<convolution_layer> out;
    core::for_each_index<network::size>([&](auto index) {
        using layer = typename network::template layer<index>;
        if constexpr (is_convolution<layer>)
            if (!only_tuned || is_tuned<typename Net::template spec<index>>)
                out.push_back({index, layer::geometry, network::facts[index].input_learns});
    });
    return out;
}

}  // namespace lockstep::planner
