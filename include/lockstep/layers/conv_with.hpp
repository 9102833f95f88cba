// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The convolution layer with every option by its name: rectangles, dilation, groups. Models LayerSpec.

#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/algorithm.hpp"
#include "lockstep/kernels/geometry.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/depthwise_conv.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layers {

/// A number for rows and one for columns: {3, 5}, or 3 for both.
struct rows_and_columns {
    std::size_t rows;
    std::size_t columns;
    constexpr rows_and_columns(std::size_t both) noexcept : rows{both}, columns{both} {}
    constexpr rows_and_columns(std::size_t down, std::size_t across) noexcept : rows{down}, columns{across} {}
    friend constexpr bool operator==(const rows_and_columns&, const rows_and_columns&) = default;
};

/// Options of conv_with. `padding` rows and columns of zeros lie on each side; kernel positions are `dilation` inputs apart (Yu, Koltun
/// 2016); the filters of each of `groups` groups see the channels of their group only (Krizhevsky et al. 2012).
struct conv_options {
    std::size_t filters = 0;
    rows_and_columns kernel = 1;
    rows_and_columns stride = 1;
    rows_and_columns padding = 0;
    rows_and_columns dilation = 1;
    std::size_t groups = 1;
    layers::bias bias = layers::bias::each;

    [[nodiscard]] constexpr bool at_least_one() const noexcept {
        return filters > 0 && groups > 0 && kernel.rows > 0 && kernel.columns > 0 && stride.rows > 0 && stride.columns > 0 &&
               dilation.rows > 0 && dilation.columns > 0;
    }
    /// For images of so many rows, columns and channels.
    [[nodiscard]] constexpr kernels::convolution on(std::size_t rows, std::size_t columns, std::size_t channels) const noexcept {
        return {.rows = rows,
                .columns = columns,
                .channels = channels,
                .filters = filters,
                .kernel_rows = kernel.rows,
                .kernel_columns = kernel.columns,
                .stride_rows = stride.rows,
                .stride_columns = stride.columns,
                .pad_top = padding.rows,
                .pad_bottom = padding.rows,
                .pad_left = padding.columns,
                .pad_right = padding.columns,
                .dilation_rows = dilation.rows,
                .dilation_columns = dilation.columns,
                .groups = groups};
    }
};

}  // namespace lockstep::layers

namespace lockstep::layer_api {

/// What a kernel of `kernel` positions, `dilation` apart, sees is not larger than the image of `rows_and_columns` with its padding.
template <class Input, std::size_t KernelRows, std::size_t KernelColumns, std::size_t DilationRows, std::size_t DilationColumns,
          std::size_t PaddingRows, std::size_t PaddingColumns>
inline constexpr bool dilated_window_fits = true;
template <std::size_t Rows, std::size_t Columns, std::size_t Channels, std::size_t KernelRows, std::size_t KernelColumns,
          std::size_t DilationRows, std::size_t DilationColumns, std::size_t PaddingRows, std::size_t PaddingColumns>
inline constexpr bool dilated_window_fits<tensor::shape<Rows, Columns, Channels>, KernelRows, KernelColumns, DilationRows, DilationColumns,
                                          PaddingRows, PaddingColumns> =
    Rows + 2 * PaddingRows >= kernels::reach(KernelRows, DilationRows) && Columns + 2 * PaddingColumns
                                                                              >= kernels::reach(KernelColumns, DilationColumns);

/// The groups divide the channels and the filters.
template <class Input, std::size_t Filters, std::size_t Groups>
inline constexpr bool groups_divide = true;
template <std::size_t Rows, std::size_t Columns, std::size_t Channels, std::size_t Filters, std::size_t Groups>
inline constexpr bool groups_divide<tensor::shape<Rows, Columns, Channels>, Filters, Groups> = Groups == 0 || (Channels % Groups == 0 &&
                                                                                                               Filters % Groups == 0);

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// conv_with<conv_options{.filters = 64, .kernel = {3, 5}, .stride = {2, 1}, .padding = {1, 2}, .dilation = 2, .groups = 4}>{}.
/// As many groups as channels and filters is depthwise convolution and has kernels of its own. `Rule` as for conv, but not layers::tuned.
template <conv_options Options, kernels::algorithm_rule Rule = kernels::preferred_algorithm>
struct conv_with {
    static_assert(Options.at_least_one(), "lockstep: filters, kernel, stride, dilation and groups of a convolution are at least 1");
    static_assert(std::is_empty_v<layer_api::conv_settings<Rule>>,
                  "lockstep: conv_with takes no algorithms from a file; use conv, or another rule than layers::tuned");

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        constexpr bool fits = layer_api::dilated_window_fits<Input, Options.kernel.rows, Options.kernel.columns, Options.dilation.rows,
                                                             Options.dilation.columns, Options.padding.rows, Options.padding.columns>;
        static_assert(layer_api::is_image<conv_with, Input>,
                      "lockstep: conv_with takes an image, rows x columns x channels; put it in front of flatten{}");
        static_assert(layer_api::groups_divide<Input, Options.filters, Options.groups>,
                      "lockstep: the groups of conv_with do not divide its channels and its filters; use a divisor of both");
        static_assert(layer_api::dilated_window_fits<Input, Options.kernel.rows, Options.kernel.columns, Options.dilation.rows,
                                                     Options.dilation.columns, Options.padding.rows, Options.padding.columns>,
                      "lockstep: the kernel of conv_with, with its dilation, is larger than its input; use less of it or more padding");
        if constexpr (Options.at_least_one() && layer_api::is_image<conv_with, Input> &&
                      layer_api::groups_divide<Input, Options.filters, Options.groups> && fits) {
            constexpr kernels::convolution g = Options.on(Input::extents[0], Input::extents[1], Input::extents[2]);
            if constexpr (g.is_depthwise())
                return layer_api::depthwise_layer<g, Options.bias>{};
            else
                return layer_api::conv_layer<g, Options.bias, Rule>{};
        } else {
            return layer_api::unbound<Input>{};
        }
    }
};

}  // namespace lockstep::layers
