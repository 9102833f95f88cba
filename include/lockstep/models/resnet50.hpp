// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ResNet-50: He et al. 2015, with the stride in the middle convolution of a block (Goyal et al. 2017).

#include <cstddef>
#include <utility>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

namespace detail {

/// 1 x 1, 3 x 3 and 1 x 1 convolutions to `Width`, `Width` and 4 `Width` channels, each with its normalisation; relu
/// after the sum.
template <std::size_t Width, std::size_t Stride>
[[nodiscard]] constexpr auto bottleneck() {
    using namespace layers;
    return path{conv<Width, 1, conv_options{.bias = bias::none}>{},
                batch_norm{},
                relu{},
                conv<Width, 3, conv_options{.stride = Stride, .padding = 1, .bias = bias::none}>{},
                batch_norm{},
                relu{},
                conv<4 * Width, 1, conv_options{.bias = bias::none}>{},
                batch_norm{}};
}

/// The first block of a stage changes the shape: a convolution of 1 x 1 stands in its shortcut (option B).
template <std::size_t Width, std::size_t Stride, std::size_t... Others>
[[nodiscard]] constexpr auto bottleneck_stage(std::index_sequence<Others...>) {
    using namespace layers;
    return path{add{path{conv<4 * Width, 1, conv_options{.stride = Stride, .bias = bias::none}>{}, batch_norm{}},
                    bottleneck<Width, Stride>()},
                relu{}, ((void)Others, path{residual{bottleneck<Width, 1>()}, relu{}})...};
}

}  // namespace detail

/// 224 x 224 images of 3 colours to 1000 classes: 25,557,032 parameters.
inline constexpr model::sequential resnet50{
    input<224, 224, 3>,
    layers::conv<64, 7, layers::conv_options{.stride = 2, .padding = 3, .bias = layers::bias::none}>{},
    layers::batch_norm{},
    layers::relu{},
    layers::max_pool<3, 2, 1>{},
    detail::bottleneck_stage<64, 1>(std::make_index_sequence<2>{}),
    detail::bottleneck_stage<128, 2>(std::make_index_sequence<3>{}),
    detail::bottleneck_stage<256, 2>(std::make_index_sequence<5>{}),
    detail::bottleneck_stage<512, 2>(std::make_index_sequence<2>{}),
    layers::global_mean_pool{},
    layers::dense<1000>{},
};

}  // namespace lockstep::models
