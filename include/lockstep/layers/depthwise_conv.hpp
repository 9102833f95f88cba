// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The depthwise convolution layer: one filter for each channel. Models LayerSpec.

#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv_layer.hpp"
#include "lockstep/layers/conv_options.hpp"
#include "lockstep/layers/depthwise_layer.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layers {

/// depthwise_conv<3, conv_options{.padding = 1}>{}: a filter of 3 x 3 for each channel, stride 1, one row and column of
/// zeros on each side (Chollet 2017; Howard et al. 2017).
template <rows_and_columns Kernel, conv_options Options = conv_options{}>
struct depthwise_conv {
    static constexpr bool has_sizes = Kernel.at_least(1) && Options.are_sizes();
    static_assert(has_sizes,
                  "lockstep: kernel, stride and dilation of a depthwise convolution are at least 1, padding at least "
                  "0, all of them below 2^30");
    static_assert(Options.groups <= 1,
                  "lockstep: depthwise_conv has a group for each channel; leave groups out, or use conv");

    template <tensor::ImageShape Input>
    static constexpr kernels::convolution geometry = [] {
        auto g = Options.on(Input::extents[0], Input::extents[1], Input::extents[2], Input::extents[2], Kernel);
        g.groups = Input::extents[2];
        return g;
    }();

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::is_image<depthwise_conv, Input>,
                      "lockstep: depthwise_conv takes an image, rows x columns x channels; put it before flatten{}");
        static_assert(layer_api::window_fits<depthwise_conv, Input>,
                      "lockstep: the kernel of depthwise_conv, with its dilation, is larger than its input; use a "
                      "smaller one, less dilation "
                      "or more padding");
        if constexpr (has_sizes && layer_api::is_image<depthwise_conv, Input> &&
                      layer_api::window_fits<depthwise_conv, Input>) {
            // A single channel: an ordinary convolution.
            if constexpr (geometry<Input>.is_depthwise())
                return layer_api::depthwise_layer<geometry<Input>, Options.bias>{};
            else
                return layer_api::conv_layer<geometry<Input>, Options.bias>{};
        } else {
            return layer_api::unbound<Input>{};
        }
    }
};

}  // namespace lockstep::layers
