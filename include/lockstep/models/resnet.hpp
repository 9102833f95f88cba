// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Residual networks for images of 32 x 32, as those of CIFAR: He et al. 2015, section 4.2.

#include <cstddef>
#include <utility>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

namespace detail {

/// Two convolutions of 3 x 3, each with its normalisation, past a shortcut without parameters; relu after the sum.
template <std::size_t Width, std::size_t Stride, kernels::algorithm_rule Rule>
[[nodiscard]] constexpr auto basic_block() {
    using namespace layers;
    const path body{conv<Width, 3, conv_options{.stride = Stride, .padding = 1, .bias = bias::none}, Rule>{},
                    batch_norm{}, relu{}, conv<Width, 3, conv_options{.padding = 1, .bias = bias::none}, Rule>{},
                    batch_norm{}};
    if constexpr (Stride == 1)
        return path{residual{body}, relu{}};
    else
        return path{add{shortcut<Width, Stride>{}, body}, relu{}};
}

/// A block of that stride, and after it one of stride 1 for each index.
template <std::size_t Width, std::size_t Stride, kernels::algorithm_rule Rule, std::size_t... Others>
[[nodiscard]] constexpr auto basic_stage(std::index_sequence<Others...>) {
    return path{basic_block<Width, Stride, Rule>(), ((void)Others, basic_block<Width, 1, Rule>())...};
}

template <std::size_t Depth, kernels::algorithm_rule Rule>
[[nodiscard]] constexpr auto make_resnet() {
    static_assert(Depth % 6 == 2 && Depth > 2,
                  "lockstep: a ResNet for CIFAR has 6 n + 2 layers: resnet<20>, <32>, <44>, <56>, <110>");
    using namespace layers;
    constexpr std::make_index_sequence<(Depth - 2) / 6 - 1> others;
    return model::sequential{
        input<32, 32, 3>,
        conv<16, 3, conv_options{.padding = 1, .bias = bias::none}, Rule>{},
        batch_norm{},
        relu{},
        basic_stage<16, 1, Rule>(others),
        basic_stage<32, 2, Rule>(others),
        basic_stage<64, 2, Rule>(others),
        global_mean_pool{},
        dense<10>{},
    };
}

}  // namespace detail

/// resnet<20>, <32>, <44>, <56>, <110>: 10 classes; resnet<20> has 269,722 parameters, each further block of three
/// 97,216 more. resnet<20, kernels::always_direct>: without Winograd's algorithm.
template <std::size_t Depth, kernels::algorithm_rule Rule = kernels::preferred_algorithm>
inline constexpr auto resnet = detail::make_resnet<Depth, Rule>();

}  // namespace lockstep::models
