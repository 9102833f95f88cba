// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The depthwise convolution layer: one filter for each channel. Models LayerSpec.

#include <cstddef>
#include <string_view>

#include "lockstep/kernels/depthwise.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = x * W + b for a depthwise geometry G: channel c of y sees channel c of x only; W is kernel rows x kernel columns x channels.
/// Cost per sample and pass: 2 out_rows out_columns weights flops, at the speed of the caches: a few of them for each number that is read.
template <kernels::convolution G, layers::bias Bias = layers::bias::each>
struct depthwise_layer {
    static_assert(G.is_depthwise());
    using any_groups = conv_layer<G, Bias, kernels::always_direct>;
    using input = typename any_groups::input;
    using output = typename any_groups::output;

    static constexpr std::size_t fan_in = any_groups::fan_in;
    static constexpr std::size_t fan_out = any_groups::fan_out;
    static constexpr std::string_view name = "depthwise";
    static constexpr auto parameters = any_groups::parameters;
    static constexpr double flops = G.flops();
    static constexpr bool needs_y = false;

    void forward(const auto& pass) const noexcept {
        kernels::depthwise_forward(G, pass.x.rows, pass.x.data, pass.w[0].data(), bias_of<Bias>(pass.w), pass.y.data, pass.use.team);
    }

    void backward(const auto& pass) const {
        pass.each_lane([&](parallel::block rows, const auto& dw) {
            kernels::depthwise_backward_weights(G, rows.size(), pass.x.part(rows.first, rows.size()).data,
                                                pass.dy.part(rows.first, rows.size()).data, dw[0].data(), bias_of<Bias>(dw), pass.use.team);
        });
        if (pass.wants_dx()) kernels::depthwise_backward_data(G, pass.x.rows, pass.dy.data, pass.w[0].data(), pass.dx.data, pass.use.team);
    }
};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// depthwise_conv<3, 1, 1>{}: a filter of 3 x 3 for each channel, stride 1, one row and column of zeros on each side (Chollet 2017; Howard
/// et al. 2017). depthwise_conv<3, 2, 1, bias::none>{}: stride 2, without a bias. Other kernels and dilations: conv_with.
template <std::size_t Kernel, std::size_t Stride = 1, std::size_t Padding = 0, bias Bias = bias::each>
struct depthwise_conv {
    static_assert(Kernel > 0 && Stride > 0, "lockstep: kernel and stride of a depthwise convolution are at least 1");
    static constexpr std::size_t window = Kernel;
    static constexpr std::size_t padding = Padding;
    template <tensor::ImageShape Input>
    static constexpr kernels::convolution geometry = [] {
        auto g = conv<Input::extents[2], Kernel, Stride, Padding>::template geometry<Input>;
        g.groups = Input::extents[2];
        return g;
    }();

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::is_image<depthwise_conv, Input>,
                      "lockstep: depthwise_conv takes an image, rows x columns x channels; put it in front of flatten{}");
        static_assert(layer_api::window_fits<depthwise_conv, Input>,
                      "lockstep: the kernel of depthwise_conv is larger than its input; use a smaller one or padding");
        if constexpr (Kernel > 0 && Stride > 0 && layer_api::is_image<depthwise_conv, Input> &&
                      layer_api::window_fits<depthwise_conv, Input>) {
            // A single channel: an ordinary convolution.
            if constexpr (geometry<Input>.is_depthwise())
                return layer_api::depthwise_layer<geometry<Input>, Bias>{};
            else
                return layer_api::conv_layer<geometry<Input>, Bias>{};
        } else {
            return layer_api::unbound<Input>{};
        }
    }
};

}  // namespace lockstep::layers
