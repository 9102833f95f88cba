// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Maximum and mean pooling over windows of an image, and the mean of all of it. All model LayerSpec.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/core/compiled.hpp"
#include "lockstep/kernels/pooling/pooling.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/window_details.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// What both poolings share. Cost per sample: one comparison or addition for each element of each window.
template <kernels::pooling G>
struct pool_layer {
    using input = tensor::shape<G.rows, G.columns, G.channels>;
    using output = tensor::shape<G.out_rows(), G.out_columns(), G.channels>;
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = static_cast<double>(output::size * G.kernel_rows * G.kernel_columns);
    static constexpr layer_api::traits traits{.needs_x = false, .needs_y = false};
    static constexpr window_details details = details_of(G);

protected:
    template <class T>
    static constexpr auto walks = core::compiles_kernels ? kernels::known_walks<T>(G)
                                                         : kernels::detail::gradient_walks{};
};

/// y = the largest element of the window; its gradient goes to the first largest one. Keeps one byte for each output.
template <kernels::pooling G>
struct max_pool_layer : pool_layer<G> {
    static_assert(G.kernel_rows * G.kernel_columns <= 256,
                  "lockstep: max_pool numbers the elements of a window in one byte; use at most 16 x 16");
    static constexpr std::string_view name = "max_pool";
    static constexpr layer_api::traits traits{
        .needs_x = false, .needs_y = false, .saved_bytes = max_pool_layer::output::size};

    void forward(const auto& pass) const noexcept {
        const bool trains = pass.mode == mode::training;
        kernels::max_pool_forward(G, pass.x.rows, pass.x.data, pass.y.data,
                                  trains ? reinterpret_cast<std::uint8_t*>(pass.saved.data()) : nullptr, pass.use.team);
    }
    void backward(const auto& pass) const noexcept {
        using T = std::remove_cvref_t<decltype(pass.dx.data[0])>;
        if (pass.wants_dx())
            kernels::max_pool_backward<T, pool_layer<G>::template walks<T>>(
                G, pass.x.rows, pass.dy.data, reinterpret_cast<const std::uint8_t*>(pass.saved.data()), pass.dx.data,
                pass.use.team);
    }
};

/// y = the mean of the window.
template <kernels::pooling G>
struct mean_pool_layer : pool_layer<G> {
    static constexpr std::string_view name = "mean_pool";

    void forward(const auto& pass) const noexcept {
        kernels::mean_pool_forward(G, pass.x.rows, pass.x.data, pass.y.data, pass.use.team);
    }
    void backward(const auto& pass) const noexcept {
        using T = std::remove_cvref_t<decltype(pass.dx.data[0])>;
        if (pass.wants_dx())
            kernels::mean_pool_backward<T, pool_layer<G>::template walks<T>>(G, pass.x.rows, pass.dy.data, pass.dx.data,
                                                                             pass.use.team);
    }
};

/// y = the mean of all pixels, one feature for each channel.
template <kernels::pooling G>
struct global_mean_pool_layer : mean_pool_layer<G> {
    using output = tensor::shape<G.channels>;
    static constexpr std::string_view name = "global_mean_pool";
};

/// A sample has rows and columns of at least the window's.
template <class Spec, class Input>
inline constexpr bool has_windows = false;
template <class Spec, std::size_t Rows, std::size_t Columns, std::size_t Channels>
inline constexpr bool has_windows<Spec, tensor::shape<Rows, Columns, Channels>> =
    (Rows + 2 * Spec::padding >= Spec::window) && (Columns + 2 * Spec::padding >= Spec::window);

template <std::size_t Window, std::size_t Stride, std::size_t Padding, tensor::ImageShape Input>
inline constexpr kernels::pooling pooling_of{.rows = Input::extents[0],
                                             .columns = Input::extents[1],
                                             .channels = Input::extents[2],
                                             .kernel_rows = Window,
                                             .kernel_columns = Window,
                                             .stride_rows = Stride,
                                             .stride_columns = Stride,
                                             .pad_top = Padding,
                                             .pad_bottom = Padding,
                                             .pad_left = Padding,
                                             .pad_right = Padding};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// max_pool<2>{}: windows of 2 x 2 side by side. max_pool<3, 2>{}: overlapping. max_pool<3, 2, 1>{}: windows may leave
/// the image by one, where nothing is. Windows that would leave it by more are left out.
template <std::size_t Window, std::size_t Stride = Window, std::size_t Padding = 0>
struct max_pool {
    static_assert(Window > 0 && Stride > 0, "lockstep: window and stride of a pooling are at least 1");
    static_assert(Padding < Window, "lockstep: the padding of a pooling is smaller than its window");
    static constexpr std::size_t window = Window;
    static constexpr std::size_t padding = Padding;
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(
            layer_api::has_windows<max_pool, Input>,
            "lockstep: max_pool takes an image at least as large as its window; shapes are rows x columns x channels");
        if constexpr (Window > 0 && Stride > 0 && Padding < Window && layer_api::has_windows<max_pool, Input>)
            return layer_api::max_pool_layer<layer_api::pooling_of<Window, Stride, Padding, Input>>{};
        else
            return layer_api::unbound<Input>{};
    }
};

/// mean_pool<2>{}: the mean of windows of 2 x 2.
template <std::size_t Window, std::size_t Stride = Window>
struct mean_pool {
    static_assert(Window > 0 && Stride > 0, "lockstep: window and stride of a pooling are at least 1");
    static constexpr std::size_t window = Window;
    static constexpr std::size_t padding = 0;
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(
            layer_api::has_windows<mean_pool, Input>,
            "lockstep: mean_pool takes an image at least as large as its window; shapes are rows x columns x channels");
        if constexpr (Window > 0 && Stride > 0 && layer_api::has_windows<mean_pool, Input>)
            return layer_api::mean_pool_layer<layer_api::pooling_of<Window, Stride, 0, Input>>{};
        else
            return layer_api::unbound<Input>{};
    }
};

}  // namespace lockstep::layers

namespace lockstep::layer_api {

/// A sample has rows, columns and channels.
template <class Spec, class Input>
inline constexpr bool has_pixels = tensor::ImageShape<Input>;

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// global_mean_pool{}: rows x columns x channels to channels (Lin, Chen, Yan 2014).
struct global_mean_pool {
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::has_pixels<global_mean_pool, Input>,
                      "lockstep: global_mean_pool takes an image, rows x columns x channels; put it before flatten{}");
        if constexpr (layer_api::has_pixels<global_mean_pool, Input>)
            return layer_api::global_mean_pool_layer<kernels::pooling{.rows = Input::extents[0],
                                                                      .columns = Input::extents[1],
                                                                      .channels = Input::extents[2],
                                                                      .kernel_rows = Input::extents[0],
                                                                      .kernel_columns = Input::extents[1]}>{};
        else
            return layer_api::unbound<Input>{};
    }
};

}  // namespace lockstep::layers
