// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Direct convolution of images whose channels lie innermost, and its two backward passes.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/correlate.hpp"
#include "lockstep/kernels/geometry.hpp"
#include "lockstep/kernels/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/kernels/tile.hpp"
#include "lockstep/kernels/window.hpp"

namespace lockstep::kernels {

namespace detail {

[[nodiscard]] constexpr sliding forward_sliding(const convolution& g) noexcept {
    return {g.rows,
            g.columns,
            g.channels,
            g.out_rows(),
            g.out_columns(),
            g.kernel_rows,
            g.kernel_columns,
            g.stride_rows,
            g.stride_columns,
            -static_cast<std::ptrdiff_t>(g.pad_top),
            -static_cast<std::ptrdiff_t>(g.pad_left)};
}

/// The input positions first, first + stride, .. along one dimension: all of them see the same kernel positions, offset + stride t.
struct phase {
    std::size_t count;      ///< input positions
    std::size_t offset;     ///< first kernel position
    std::size_t taps;       ///< kernel positions
    std::ptrdiff_t origin;  ///< output position that the first input position meets at the last kernel position

    constexpr phase(std::size_t first, std::size_t size, std::size_t stride, std::size_t padding, std::size_t kernel) noexcept
        : count{(size - first + stride - 1) / stride},
          offset{(first + padding) % stride},
          taps{offset < kernel ? (kernel - offset + stride - 1) / stride : 0},
          origin{static_cast<std::ptrdiff_t>((first + padding) / stride) - static_cast<std::ptrdiff_t>(taps) + 1} {}
};

/// The data gradient of one phase is a convolution of dy with stride 1 and the kernel positions of the phase in reverse.
[[nodiscard]] constexpr sliding backward_sliding(const convolution& g, const phase& down, const phase& across) noexcept {
    return {g.out_rows(), g.out_columns(), g.filters, down.count, across.count, down.taps, across.taps, 1, 1, down.origin, across.origin};
}

/// Calls f(first row, first column, phase of the rows, phase of the columns) for every phase.
template <class F>
constexpr void for_phases(const convolution& g, F&& f) {
    for (std::size_t r = 0; r < std::min(g.stride_rows, g.rows); ++r)
        for (std::size_t c = 0; c < std::min(g.stride_columns, g.columns); ++c)
            f(r, c, phase{r, g.rows, g.stride_rows, g.pad_top, g.kernel_rows},
              phase{c, g.columns, g.stride_columns, g.pad_left, g.kernel_columns});
}

[[nodiscard]] constexpr bool nothing_to_see(const convolution& g) noexcept { return g.out_rows() == 0 || g.out_columns() == 0; }

}  // namespace detail

/// Elements of scratch of convolution_forward for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t convolution_forward_scratch(const convolution& g, std::size_t batch, parallel::team team) noexcept {
    if (detail::nothing_to_see(g) || batch == 0) return 0;
    const detail::sliding s = detail::forward_sliding(g);
    return s.links() * detail::round_up(g.filters, detail::tile_columns<T>) +
           static_cast<std::size_t>(team.threads) * detail::copy_share<T>(s, g.filters, batch, team);
}

/// y = x * w + bias; bias has `filters` entries or is null. Each output is one chain of fused multiply-adds: it starts from the bias and
/// goes over kernel rows, kernel columns and channels in this order; padding takes part as zeros or is left out, as the sizes say.
/// Cost: batch x flops(), one packed copy of w, one padded copy of x.
template <class T>
void convolution_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y, resources<T> use) noexcept {
    if (detail::nothing_to_see(g) || batch == 0) return;
    const detail::sliding s = detail::forward_sliding(g);
    constexpr std::size_t columns = detail::tile_columns<T>;
    T* const panels = use.scratch.data();
    parallel::for_blocks(use.team, g.filters, columns, [&](parallel::block mine) {
        detail::pack<columns>(s.links(), mine.size(), w + mine.first, g.filters, panels + mine.first * s.links(), s.links() * columns);
    });
    detail::correlate<T>({s, g.filters, x, panels, bias, y, {g.filters, g.out_columns() * g.filters, g.out_size()}}, batch, use.team,
                         panels + s.links() * detail::round_up(g.filters, columns));
}

/// Elements of scratch of convolution_backward_data for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t convolution_backward_data_scratch(const convolution& g, std::size_t batch,
                                                                      parallel::team team) noexcept {
    if (detail::nothing_to_see(g) || batch == 0) return 0;
    std::size_t most = 0;
    detail::for_phases(g, [&](std::size_t, std::size_t, const detail::phase& down, const detail::phase& across) {
        const detail::sliding s = detail::backward_sliding(g, down, across);
        if (s.links() == 0) return;
        most = std::max(most, s.links() * detail::round_up(g.channels, detail::tile_columns<T>) +
                                  static_cast<std::size_t>(team.threads) * detail::copy_share<T>(s, g.channels, batch, team));
    });
    return most;
}

/// dx = the gradient with respect to x, from dy. Each element is one chain from zero over output rows, output columns and filters, in this
/// order. A stride above 1 makes stride_rows x stride_columns convolutions of stride 1. Cost: batch x flops(), one transposed copy of w.
template <class T>
void convolution_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx, resources<T> use) noexcept {
    if (batch == 0) return;
    if (detail::nothing_to_see(g)) {
        std::fill_n(dx, batch * g.in_size(), T{0});
        return;
    }
    constexpr std::size_t columns = detail::tile_columns<T>;
    const detail::output_pitch pitch{g.stride_columns * g.channels, g.stride_rows * g.columns * g.channels, g.in_size()};
    detail::for_phases(g, [&](std::size_t r, std::size_t c, const detail::phase& down, const detail::phase& across) {
        detail::sliding s = detail::backward_sliding(g, down, across);
        if (s.links() == 0) s.taps_rows = s.taps_columns = 0;
        T* const panels = use.scratch.data();
        parallel::for_blocks(use.team, g.channels, columns, [&](parallel::block mine) {
            T* to = panels + mine.first * s.links();
            for (std::size_t i = s.taps_rows; i-- > 0;)
                for (std::size_t j = s.taps_columns; j-- > 0; to += g.filters * columns) {
                    const std::size_t tap = (down.offset + i * g.stride_rows) * g.kernel_columns + across.offset + j * g.stride_columns;
                    detail::pack_transposed<columns>(g.filters, mine.size(), w + (tap * g.channels + mine.first) * g.filters, g.filters, to,
                                                     s.links() * columns);
                }
        });
        detail::correlate<T>({s, g.channels, dy, panels, nullptr, dx + (r * g.columns + c) * g.channels, pitch}, batch, use.team,
                             panels + s.links() * detail::round_up(g.channels, columns));
    });
}

/// Elements of scratch of convolution_backward_weights for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t convolution_backward_weights_scratch(const convolution& g, std::size_t batch,
                                                                         parallel::team team) noexcept {
    if (detail::nothing_to_see(g) || batch == 0) return 0;
    return static_cast<std::size_t>(team.threads) * detail::outer_blocks<T>::share(detail::forward_sliding(g), batch, g.filters);
}

/// dw = the gradient with respect to the weights, dbias (filters entries, or null) that with respect to the bias. Each element is one chain
/// from zero over samples, output rows and output columns in ascending order. Threads split dw, so small kernels use few of them.
/// Cost: batch x flops(), one packed copy of dy, kernel_rows x kernel_columns / stride of x.
template <class T>
void convolution_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                                  resources<T> use) noexcept {
    if (batch > 0 && !detail::nothing_to_see(g)) {
        detail::outer_products(detail::forward_sliding(g), batch, g.filters, x, dy, dw, dbias, use);
        return;
    }
    std::fill_n(dw, g.weight_count(), T{0});
    if (dbias) std::fill_n(dbias, g.filters, T{0});
}

}  // namespace lockstep::kernels
