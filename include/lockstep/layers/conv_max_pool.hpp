// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A convolution and the maximum of each window of its outputs as one layer, whose gradients multiply the winners only.
// Models LayerSpec.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/kernels/pooling/pooled_convolution.hpp"
#include "lockstep/kernels/pooling/pooled_gradients.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv_layer.hpp"
#include "lockstep/layers/conv_options.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = the largest element of each window of x * W + b, by the direct algorithm; weights as in conv_layer. Cost per
/// sample: forward that of the convolution, each gradient that divided by the size of a window. Keeps one byte for each
/// output; the outputs of the convolution are kept nowhere.
template <kernels::pooled_convolution G, layers::bias Bias = layers::bias::each>
struct conv_max_pool_layer {
    static_assert(G.window_rows * G.window_columns <= 256,
                  "lockstep: conv_max_pool numbers the elements of a window in one byte; use at most 16 x 16");
    using conv = conv_layer<G.conv, Bias, kernels::always_direct>;
    using input = typename conv::input;
    using output = tensor::shape<G.out_rows(), G.out_columns(), G.conv.filters>;

    static constexpr std::string_view name = "conv_max_pool";
    static constexpr auto parameters = conv::parameters;
    static constexpr double flops = conv::flops;
    static constexpr layer_api::traits traits{
        .needs_y = false,
        .deals_lanes = true,
        .saved_bytes = output::size,
        .gradient_share = 1 / static_cast<double>(G.window_rows * G.window_columns)};
    static constexpr window_details details = [] {
        window_details out = details_of(G.conv);
        out.pool_rows = G.window_rows;
        out.pool_columns = G.window_columns;
        return out;
    }();

    template <class T>
    [[nodiscard]] static constexpr std::size_t scratch(std::size_t rows, std::size_t lanes, parallel::team team) {
        return std::max({kernels::pooled_forward_scratch<T>(G, rows, team),
                         kernels::pooled_backward_weights_scratch<T>(G, team),
                         kernels::pooled_backward_data_scratch<T>(G, team),
                         dealt_scratch<T>(kernels::pooled_backward_weights_scratch<T>(G, {1}), lanes, team)});
    }

    void forward(const auto& pass) const noexcept {
        kernels::pooled_forward(
            G, pass.x.rows, pass.x.data, pass.w[0].data(), bias_of<Bias>(pass.w), pass.y.data,
            pass.mode == mode::training ? reinterpret_cast<std::uint8_t*>(pass.saved.data()) : nullptr, pass.use);
    }
    void backward(const auto& pass) const {
        const auto* const which = reinterpret_cast<const std::uint8_t*>(pass.saved.data());
        pass.deal_lanes([&](parallel::block rows, const auto& dw, const auto& use) {
            kernels::pooled_backward_weights(G, rows.size(), pass.x.part(rows.first, rows.size()).data,
                                             pass.dy.part(rows.first, rows.size()).data,
                                             which + rows.first * output::size, dw[0].data(), bias_of<Bias>(dw), use);
        });
        if (pass.wants_dx())
            kernels::pooled_backward_data(G, pass.x.rows, pass.dy.data, which, pass.w[0].data(), pass.dx.data,
                                          pass.use);
    }
};

/// The outputs of the convolution hold at least one window.
template <class Spec, class Input>
inline constexpr bool holds_a_window = true;
template <class Spec, tensor::ImageShape Input>
inline constexpr bool holds_a_window<Spec, Input> =
    Spec::template pooled<Input>.out_rows() > 0 && Spec::template pooled<Input>.out_columns() > 0;

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// Options of conv_max_pool, those of the convolution as in conv_options; the maximum is taken in each `window`, side
/// by side.
struct conv_max_pool_options {
    rows_and_columns stride = 1;
    rows_and_columns padding = 0;
    rows_and_columns window = 2;
    layers::bias bias = layers::bias::each;
};

/// conv_max_pool<6, 5, conv_max_pool_options{.padding = 2}>{}: what conv<6, 5, conv_options{.padding = 2}>{},
/// max_pool<2>{} computes. A relu after it gives what one between the two gives.
template <std::size_t Filters, rows_and_columns Kernel, conv_max_pool_options Options = conv_max_pool_options{}>
struct conv_max_pool {
    static constexpr bool has_sizes = rows_and_columns{Filters}.at_least(1) && Kernel.at_least(1) &&
                                      Options.stride.at_least(1) && Options.padding.at_least(0) &&
                                      Options.window.at_least(1);
    static_assert(has_sizes,
                  "lockstep: filters, kernel, stride and window of conv_max_pool are at least 1, padding at least 0, "
                  "all of them below 2^30");

    /// Of the convolution.
    template <tensor::ImageShape Input>
    static constexpr kernels::convolution geometry =
        conv_options{.stride = Options.stride, .padding = Options.padding}.on(Input::extents[0], Input::extents[1],
                                                                              Input::extents[2], Filters, Kernel);
    template <tensor::ImageShape Input>
    static constexpr kernels::pooled_convolution pooled{geometry<Input>, Options.window.rows, Options.window.columns};

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::is_image<conv_max_pool, Input>,
                      "lockstep: conv_max_pool takes an image, rows x columns x channels; put it before flatten{}");
        static_assert(layer_api::window_fits<conv_max_pool, Input>,
                      "lockstep: the kernel of conv_max_pool is larger than its input; use a smaller one or padding");
        if constexpr (has_sizes && layer_api::is_image<conv_max_pool, Input> &&
                      layer_api::window_fits<conv_max_pool, Input>) {
            static_assert(layer_api::holds_a_window<conv_max_pool, Input>,
                          "lockstep: the window of conv_max_pool is larger than what its convolution puts out; use a "
                          "smaller one");
            if constexpr (layer_api::holds_a_window<conv_max_pool, Input>)
                return layer_api::conv_max_pool_layer<pooled<Input>, Options.bias>{};
            else
                return layer_api::unbound<Input>{};
        } else {
            return layer_api::unbound<Input>{};
        }
    }
};

}  // namespace lockstep::layers
