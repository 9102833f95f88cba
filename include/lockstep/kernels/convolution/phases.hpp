// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data gradient of a convolution with strides falls into phases: convolutions of stride 1, each for the input
// positions that see the same part of the kernel.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/window.hpp"

namespace lockstep::kernels::detail {

/// The input positions first, first + stride, .. along one dimension: all of them see the same kernel positions, offset
/// + step t. With c the greatest common divisor of stride and dilation, a position that the padding moves to p reaches
/// output (p - k dilation) / stride at kernel position k, so k is fixed modulo stride / c, and there is none unless c
/// divides p. A phase is a convolution of dilation `dilation / c` with every (stride / c)-th kernel position.
///     dx    0   1   2   3   4     stride 2, kernel of 3, padding 1
///           |  / \  |  / \  |     even positions meet kernel position 1 of one output,
///     dy    0       1       2     odd ones position 2 of the output on the left and 0 of the one on the right
struct phase {
    std::size_t count;       ///< input positions
    std::size_t step;        ///< between kernel positions
    std::size_t dilation;    ///< between the output positions that they reach
    std::size_t offset = 0;  ///< first kernel position
    std::size_t taps = 0;    ///< kernel positions
    std::ptrdiff_t origin;   ///< output position that the first input position reaches at the last kernel position

    constexpr phase(std::size_t first, std::size_t size, std::size_t stride, std::size_t padding, std::size_t kernel,
                    std::size_t dilated = 1) noexcept
        : count{(size - first + stride - 1) / stride},
          step{stride / std::gcd(stride, dilated)},
          dilation{dilated / std::gcd(stride, dilated)} {
        const std::size_t padded = first + padding;
        while (offset < step && (padded + (stride - 1) * offset * dilated) % stride != 0) ++offset;
        if (offset < step && offset < kernel) taps = (kernel - offset + step - 1) / step;
        const auto signed_of = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
        origin = taps == 0 ? 0
                           : (signed_of(padded) - signed_of(offset * dilated)) / signed_of(stride) -
                                 signed_of((taps - 1) * dilation);
    }
};

/// The data gradient of one phase and group is a convolution of dy with stride 1 and the kernel positions of the phase
/// in reverse.
[[nodiscard]] constexpr sliding backward_sliding(const convolution& g, const phase& down,
                                                 const phase& across) noexcept {
    return {
        g.out_rows(), g.out_columns(), g.group_filters(), down.count,      across.count, down.taps, across.taps, 1, 1,
        down.origin,  across.origin,   down.dilation,     across.dilation, g.filters};
}

/// The same for correlate: without links, nothing of a kernel.
[[nodiscard]] constexpr sliding phase_sliding(const convolution& g, const phase& down, const phase& across) noexcept {
    sliding s = backward_sliding(g, down, across);
    if (s.links() == 0) s.taps_rows = s.taps_columns = 0;
    return s;
}

/// Calls f(first row, first column, phase of the rows, phase of the columns) for every phase.
template <class F>
constexpr void for_phases(const convolution& g, F&& f) {
    for (std::size_t r = 0; r < std::min(g.stride_rows, g.rows); ++r)
        for (std::size_t c = 0; c < std::min(g.stride_columns, g.columns); ++c)
            f(r, c, phase{r, g.rows, g.stride_rows, g.pad_top, g.kernel_rows, g.dilation_rows},
              phase{c, g.columns, g.stride_columns, g.pad_left, g.kernel_columns, g.dilation_columns});
}

}  // namespace lockstep::kernels::detail
