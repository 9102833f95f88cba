// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The shortcut without parameters past a block that halves the image and widens its channels (He et al. 2015, option
// A). Models LayerSpec.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/window_details.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = x at every Stride-th row and column, with zeros in further channels: half of them, rounded down, before the
/// others, the rest after them.
template <tensor::ImageShape S, std::size_t Channels, std::size_t Stride>
struct shortcut_layer {
    static constexpr std::size_t rows = (S::extents[0] + Stride - 1) / Stride,
                                 columns = (S::extents[1] + Stride - 1) / Stride;
    static constexpr std::size_t channels = S::extents[2], before = (Channels - channels) / 2;

    using input = S;
    using output = tensor::shape<rows, columns, Channels>;
    static constexpr std::string_view name = "shortcut";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    static constexpr layer_api::traits traits{.needs_x = false, .needs_y = false};
    static constexpr window_details details{.stride_rows = Stride, .stride_columns = Stride};

    template <class Pass>
    void forward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        parallel::for_blocks(pass.use.team, pass.x.rows, 1, [&](parallel::block samples) {
            for_places(samples, pass.x.data, pass.y.data, [](const T* x, T* y) {
                y = std::fill_n(y, before, T{0});
                y = std::copy_n(x, channels, y);
                std::fill_n(y, Channels - channels - before, T{0});
            });
        });
    }
    template <class Pass>
    void backward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        if (!pass.wants_dx()) return;
        parallel::for_blocks(pass.use.team, pass.dx.rows, 1, [&](parallel::block samples) {
            std::fill(pass.dx.data + samples.first * S::size, pass.dx.data + samples.last * S::size, T{0});
            for_places(samples, pass.dx.data, pass.dy.data,
                       [](T* dx, const T* dy) { std::copy_n(dy + before, channels, dx); });
        });
    }

private:
    /// f(channels of the input, channels of the output) at each place of the output.
    template <class X, class Y, class F>
    static void for_places(parallel::block samples, X* x, Y* y, F&& f) noexcept {
        for (std::size_t sample = samples.first; sample < samples.last; ++sample)
            for (std::size_t row = 0; row < rows; ++row)
                for (std::size_t column = 0; column < columns; ++column)
                    f(x + sample * S::size + (row * S::extents[1] + column) * Stride * channels,
                      y + sample * output::size + (row * columns + column) * Channels);
    }
};

/// A sample is an image of at most so many channels.
template <class Spec, class Input>
inline constexpr bool widens = false;
template <class Spec, std::size_t Rows, std::size_t Columns, std::size_t Channels>
inline constexpr bool widens<Spec, tensor::shape<Rows, Columns, Channels>> = Channels <= Spec::channels;

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// shortcut<32, 2>{}: every second row and column, filled up to 32 channels.
template <std::size_t Channels, std::size_t Stride = 1>
struct shortcut {
    static_assert(Channels > 0 && Stride > 0, "lockstep: channels and stride of a shortcut are at least 1");
    static constexpr std::size_t channels = Channels;
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::widens<shortcut, Input>,
                      "lockstep: a shortcut takes an image of at most as many channels as it gives");
        if constexpr (Channels > 0 && Stride > 0 && layer_api::widens<shortcut, Input>)
            return layer_api::shortcut_layer<Input, Channels, Stride>{};
        else
            return layer_api::unbound<Input>{};
    }
};

}  // namespace lockstep::layers
