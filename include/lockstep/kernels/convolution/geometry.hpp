// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sizes of a two-dimensional convolution and of a pooling: what their kernels take besides pointers.

#include <cstddef>

namespace lockstep::kernels {

/// Outputs along one dimension: floor((size + padding - kernel) / stride) + 1, or 0 where the kernel does not fit.
[[nodiscard]] constexpr std::size_t window_count(std::size_t size, std::size_t padding, std::size_t kernel,
                                                 std::size_t stride) noexcept {
    return size + padding < kernel ? 0 : (size + padding - kernel) / stride + 1;
}

/// Inputs from the first to the last that a kernel of so many positions, `dilation` apart, sees along one dimension.
[[nodiscard]] constexpr std::size_t reach(std::size_t kernel, std::size_t dilation) noexcept {
    return kernel == 0 ? 0 : (kernel - 1) * dilation + 1;
}

/// x is batch x rows x columns x channels, weights are kernel_rows x kernel_columns x channels of a group x filters,
/// y is batch x out_rows x out_columns x filters. Padding is zeros. Kernel positions are `dilation` inputs apart.
/// Channels and filters are cut into `groups` of neighbours, and the filters of a group see its channels only; `groups`
/// divides both.
struct convolution {
    std::size_t rows = 1;
    std::size_t columns = 1;
    std::size_t channels = 1;
    std::size_t filters = 1;
    std::size_t kernel_rows = 1;
    std::size_t kernel_columns = 1;
    std::size_t stride_rows = 1;
    std::size_t stride_columns = 1;
    std::size_t pad_top = 0;
    std::size_t pad_bottom = 0;
    std::size_t pad_left = 0;
    std::size_t pad_right = 0;
    std::size_t dilation_rows = 1;
    std::size_t dilation_columns = 1;
    std::size_t groups = 1;

    [[nodiscard]] constexpr std::size_t out_rows() const noexcept {
        return window_count(rows, pad_top + pad_bottom, reach(kernel_rows, dilation_rows), stride_rows);
    }
    [[nodiscard]] constexpr std::size_t out_columns() const noexcept {
        return window_count(columns, pad_left + pad_right, reach(kernel_columns, dilation_columns), stride_columns);
    }
    [[nodiscard]] constexpr std::size_t group_channels() const noexcept { return channels / groups; }
    [[nodiscard]] constexpr std::size_t group_filters() const noexcept { return filters / groups; }
    [[nodiscard]] constexpr std::size_t in_size() const noexcept { return rows * columns * channels; }
    [[nodiscard]] constexpr std::size_t out_size() const noexcept { return out_rows() * out_columns() * filters; }
    [[nodiscard]] constexpr std::size_t weight_count() const noexcept {
        return kernel_rows * kernel_columns * group_channels() * filters;
    }
    [[nodiscard]] constexpr bool is_dilated() const noexcept { return dilation_rows > 1 || dilation_columns > 1; }
    /// Each filter sees a channel of its own.
    [[nodiscard]] constexpr bool is_depthwise() const noexcept {
        return groups > 1 && channels == groups && filters == groups;
    }
    /// One multiply-add counts two; the padding is counted like the rest.
    [[nodiscard]] constexpr double flops() const noexcept {
        return 2.0 * static_cast<double>(out_rows() * out_columns()) * static_cast<double>(weight_count());
    }
    friend constexpr bool operator==(const convolution&, const convolution&) = default;
};

/// x is batch x rows x columns x channels, y is batch x out_rows x out_columns x channels. What a window has outside of
/// x does not exist: it is no candidate for the maximum and does not count for the mean.
struct pooling {
    std::size_t rows = 1;
    std::size_t columns = 1;
    std::size_t channels = 1;
    std::size_t kernel_rows = 1;
    std::size_t kernel_columns = 1;
    std::size_t stride_rows = 1;
    std::size_t stride_columns = 1;
    std::size_t pad_top = 0;
    std::size_t pad_bottom = 0;
    std::size_t pad_left = 0;
    std::size_t pad_right = 0;

    [[nodiscard]] constexpr std::size_t out_rows() const noexcept {
        return window_count(rows, pad_top + pad_bottom, kernel_rows, stride_rows);
    }
    [[nodiscard]] constexpr std::size_t out_columns() const noexcept {
        return window_count(columns, pad_left + pad_right, kernel_columns, stride_columns);
    }
    [[nodiscard]] constexpr std::size_t in_size() const noexcept { return rows * columns * channels; }
    [[nodiscard]] constexpr std::size_t out_size() const noexcept { return out_rows() * out_columns() * channels; }
    friend constexpr bool operator==(const pooling&, const pooling&) = default;
};

}  // namespace lockstep::kernels
