// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The named options of convolutions, and what their specs check of an input.

#include <cstddef>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layers {

/// Whether a convolution adds a bias to each filter: none before a normalisation, which would take it away again.
enum class bias : bool { none, each };

/// A number for rows and one for columns: {3, 5}, or 3 for both.
struct rows_and_columns {
    std::size_t rows;
    std::size_t columns;
    constexpr rows_and_columns(std::size_t both) noexcept : rows{both}, columns{both} {}
    constexpr rows_and_columns(std::size_t down, std::size_t across) noexcept : rows{down}, columns{across} {}
    friend constexpr bool operator==(const rows_and_columns&, const rows_and_columns&) = default;

    /// From `least` to `most`: a negative number has become a larger one.
    [[nodiscard]] constexpr bool at_least(std::size_t least) const noexcept {
        return rows >= least && columns >= least && rows <= most && columns <= most;
    }
    static constexpr std::size_t most = (std::size_t{1} << 30U) - 1;
};

/// Options of conv and depthwise_conv. `padding` rows and columns of zeros lie on each side; kernel positions are
/// `dilation` inputs apart (Yu, Koltun 2016); the filters of each of `groups` groups see the channels of their group
/// only (Krizhevsky et al. 2012).
struct conv_options {
    rows_and_columns stride = 1;
    rows_and_columns padding = 0;
    rows_and_columns dilation = 1;
    std::size_t groups = 1;
    layers::bias bias = layers::bias::each;

    /// Strides, dilations and groups are at least 1, paddings at least 0.
    [[nodiscard]] constexpr bool are_sizes() const noexcept {
        return stride.at_least(1) && padding.at_least(0) && dilation.at_least(1) &&
               rows_and_columns{groups}.at_least(1);
    }
    /// Of so many filters, for images of so many rows, columns and channels.
    [[nodiscard]] constexpr kernels::convolution on(std::size_t rows, std::size_t columns, std::size_t channels,
                                                    std::size_t filters, rows_and_columns kernel) const noexcept {
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

/// A sample has rows, columns and channels.
template <class Spec, class Input>
inline constexpr bool is_image = tensor::ImageShape<Input>;

/// The kernel, with its dilation, is not larger than the padded image. Numbers of 0 have a message of their own.
template <class Spec, class Input>
inline constexpr bool window_fits = true;
template <class Spec, tensor::ImageShape Input>
    requires(Spec::has_sizes)
inline constexpr bool window_fits<Spec, Input> = Spec::template geometry<Input>.out_rows() > 0 &&
                                                 Spec::template geometry<Input>.out_columns() > 0;

/// The groups divide the channels and the filters.
template <class Spec, class Input>
inline constexpr bool groups_divide = true;
template <class Spec, tensor::ImageShape Input>
    requires(Spec::has_sizes)
inline constexpr bool groups_divide<Spec, Input> =
    Spec::template geometry<Input>.channels % Spec::template geometry<Input>.groups == 0 &&
    Spec::template geometry<Input>.filters % Spec::template geometry<Input>.groups == 0;

}  // namespace lockstep::layer_api
