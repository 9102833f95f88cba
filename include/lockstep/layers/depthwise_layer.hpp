// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A depthwise convolution bound to its input. Models Layer.
// Tested by tests/unit/layers/depthwise_conv.cpp.

#include <cstddef>
#include <string_view>

#include "lockstep/kernels/convolution/depthwise.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv_layer.hpp"
#include "lockstep/layers/window_details.hpp"

namespace lockstep::layer_api {

/// y = x * W + b for a depthwise geometry G: channel c of y sees channel c of x only; W is kernel rows x kernel columns
/// x channels. Cost per sample and pass: 2 out_rows out_columns weights flops, at the speed of the caches: a few of
/// them for each number that is read.
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
    static constexpr layer_api::traits traits{.needs_y = false};
    static constexpr window_details details = details_of(G);

    void forward(const auto& pass) const noexcept {
        kernels::depthwise_forward(G, pass.x.rows, pass.x.data, pass.w[0].data(), bias_of<Bias>(pass.w), pass.y.data,
                                   pass.use.team);
    }

    void backward(const auto& pass) const {
        pass.each_lane([&](parallel::block rows, const auto& dw) {
            kernels::depthwise_backward_weights(G, rows.size(), pass.x.part(rows.first, rows.size()).data,
                                                pass.dy.part(rows.first, rows.size()).data, dw[0].data(),
                                                bias_of<Bias>(dw), pass.use.team);
        });
        if (pass.wants_dx())
            kernels::depthwise_backward_data(G, pass.x.rows, pass.dy.data, pass.w[0].data(), pass.dx.data,
                                             pass.use.team);
    }
};

}  // namespace lockstep::layer_api
