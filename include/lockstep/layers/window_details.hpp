// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What tells layers of windows apart whose names, counts of numbers and settings are equal.
// Tested by tests/unit/saving/network_text.cpp.

#include <array>
#include <cstddef>
#include <string_view>

namespace lockstep::layer_api {

/// A layer may have `static constexpr window_details details`: it is a part of the text of a network, by which files
/// and ranks know it (saving/network_text.hpp).
struct window_details {
    std::size_t kernel_rows = 0, kernel_columns = 0;  ///< 0: it has no windows of pixels
    std::size_t stride_rows = 1, stride_columns = 1;
    std::size_t padding_rows = 0, padding_columns = 0;
    std::size_t dilation_rows = 1, dilation_columns = 1;
    std::size_t groups = 1;
    std::size_t pool_rows = 0, pool_columns = 0;  ///< of the pooling after a convolution
    std::size_t channels = 0;                     ///< of a window of channels
    std::array<std::string_view, 3>
        algorithms{};  ///< of the three passes, where another rule than the usual picks them
};

/// Of kernels::convolution or kernels::pooling.
template <class Geometry>
[[nodiscard]] constexpr window_details details_of(const Geometry& of) noexcept {
    window_details out{.kernel_rows = of.kernel_rows,
                       .kernel_columns = of.kernel_columns,
                       .stride_rows = of.stride_rows,
                       .stride_columns = of.stride_columns,
                       .padding_rows = of.pad_top,
                       .padding_columns = of.pad_left};
    if constexpr (requires { of.groups; }) {
        out.dilation_rows = of.dilation_rows;
        out.dilation_columns = of.dilation_columns;
        out.groups = of.groups;
    }
    return out;
}

}  // namespace lockstep::layer_api
