// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data gradient into few channels: each pixel of dy is multiplied into the kernel rows that it saw, and added where
// they lie.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels::detail {

///     row of dx             [ a a a | b b b | c c c ]                 kernel row of 3 columns x 3 channels
///     next output, stride 1         [ a a a | b b b | c c c ]
/// Each bracket is one run of numbers to which dy(output, filter) x (kernel row of the filter) is added.
/// A kernel row (kernel_columns x channels numbers, which lie side by side in dx) is what a vector runs along, instead
/// of the channels of one pixel. Nothing is multiplied with padding.
template <class T>
struct few_channels_data_rows {
    convolution g;

    static constexpr std::size_t samples = tile_rows;  ///< that go through a register tile together

    /// Numbers of a kernel row, up to whole vectors: there the weights are zeros.
    [[nodiscard]] constexpr std::size_t wide() const noexcept {
        return round_up(g.kernel_columns * g.channels, simd::width<T>);
    }
    [[nodiscard]] constexpr std::size_t weights() const noexcept {
        return g.kernel_rows * g.filters * round_up(g.kernel_columns * g.channels, tile_columns<T>);
    }
    /// One row of dx with its padding, and what a window may reach beyond it.
    [[nodiscard]] constexpr std::size_t pitch() const noexcept {
        return whole_lines<T>(std::max((g.out_columns() - 1) * g.stride_columns * g.channels + wide(),
                                       (g.pad_left + g.columns) * g.channels));
    }
    [[nodiscard]] constexpr std::size_t scratch(std::size_t threads) const noexcept {
        return weights() + threads * samples * pitch();
    }

    /// Kernel rows first, first + stride, ..: those that reach one row of dx. Packed in descending order, because rows
    /// of dy ascend then.
    [[nodiscard]] constexpr std::size_t phase_size(std::size_t first) const noexcept {
        return first < g.kernel_rows ? (g.kernel_rows - first + g.stride_rows - 1) / g.stride_rows : 0;
    }
    [[nodiscard]] constexpr std::size_t row_panel(std::size_t kernel_row) const noexcept {
        const std::size_t phase = kernel_row % g.stride_rows;
        std::size_t out = phase_size(phase) - 1 - kernel_row / g.stride_rows;
        for (std::size_t before = 0; before < phase; ++before) out += phase_size(before);
        return out;
    }

    void pack_weights(const T* w, T* panels) const noexcept {
        const std::size_t row = g.kernel_columns * g.channels;
        for (std::size_t i = 0; i < g.kernel_rows; ++i)
            pack_transposed<tile_columns<T>>(g.filters, row, w + i * row * g.filters, g.filters,
                                             panels + row_panel(i) * g.filters * tile_columns<T>,
                                             g.kernel_rows * g.filters * tile_columns<T>);
    }

    /// Row `row` of dx for a few samples; dy and dx are those of the first of them.
    void add_row(std::size_t row, std::size_t count, const T* dy, const T* panels, T* sums, T* dx) const noexcept {
        const std::size_t at = row + g.pad_top;
        const std::size_t first = at < g.kernel_rows ? 0 : (at - g.kernel_rows) / g.stride_rows + 1;
        const std::size_t last = std::min(g.out_rows(), at / g.stride_rows + 1);
        std::fill_n(sums, count * pitch(), T{0});
        if (first < last) {
            const std::size_t dy_row = g.out_columns() * g.filters;
            const row_chain chain{last - first, dy_row, g.filters, 1, tile_columns<T>};
            const T* const from = panels + row_panel(at - first * g.stride_rows) * g.filters * tile_columns<T>;
            pixel_rows<T> rows;
            rows.a_sample = static_cast<std::ptrdiff_t>(g.out_size());
            rows.c_sample = static_cast<std::ptrdiff_t>(pitch());
            for (std::size_t column = 0; column < g.out_columns(); ++column) {
                rows.a = dy + first * dy_row + column * g.filters;
                rows.c = sums + column * g.stride_columns * g.channels;
                multiply(count, wide(), chain, rows, from, g.kernel_rows * g.filters * tile_columns<T>, false,
                         static_cast<const T*>(nullptr));
            }
        }
        for (std::size_t sample = 0; sample < count; ++sample)
            std::copy_n(sums + sample * pitch() + g.pad_left * g.channels, g.columns * g.channels,
                        dx + sample * g.in_size() + row * g.columns * g.channels);
    }
};

/// Time of a row of `n` numbers in register tiles, in fifths of a vector: a vector alone keeps the multipliers less
/// busy than two.
template <class T>
[[nodiscard]] constexpr std::size_t row_cost(std::size_t n) noexcept {
    const std::size_t rest = n % tile_columns<T>;
    return n / tile_columns<T> * 10 + (rest > simd::width<T> ? 10 : rest > 0 ? 8 : 0);
}

/// Whether few_channels_backward_data() is quicker than correlate(), which fills vectors with the channels of one pixel
/// and adds zeros of the padding or loads and stores each sum for each kernel position. Depends on the sizes alone.
template <class T>
[[nodiscard]] constexpr bool prefers_few_channels_data(const convolution& g) noexcept {
    if (g.is_dilated() || g.groups > 1) return false;
    const std::size_t taps = g.kernel_rows * g.kernel_columns;
    const std::size_t reload = g.channels % simd::width<T> == 0 ? 5 : 40;
    const std::size_t windows = g.out_rows() * g.out_columns() * taps * (g.filters + reload);
    const std::size_t images = g.rows * g.columns * taps * g.filters / (g.stride_rows * g.stride_columns);
    const std::size_t rows = g.out_columns() * (g.kernel_rows * g.out_rows() * g.filters + 10 * g.rows);
    return 5 * rows * row_cost<T>(g.kernel_columns * g.channels) <
           4 * std::min(windows, images) * row_cost<T>(g.channels);
}

/// dx, as convolution_backward_data has it, with another order of the chain: output columns, then output rows, then
/// filters, all ascending. A number of dy that is not finite reaches up to a vector of dx beyond the window that saw
/// it. Threads split the samples.
template <class T>
void few_channels_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                                resources<T> use) noexcept {
    const few_channels_data_rows<T> all{g};
    T* const panels = use.scratch.data();
    all.pack_weights(w, panels);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(batch, static_cast<std::size_t>(use.team.threads), thread);
        T* const sums = panels + all.weights() + thread * all.samples * all.pitch();
        for (std::size_t sample = mine.first; sample < mine.last; sample += all.samples)
            for (std::size_t row = 0; row < g.rows; ++row)
                all.add_row(row, std::min(all.samples, mine.last - sample), dy + sample * g.out_size(), panels, sums,
                            dx + sample * g.in_size());
    });
}

}  // namespace lockstep::kernels::detail
