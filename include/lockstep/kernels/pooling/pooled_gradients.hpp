// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The gradients of a convolution after which the largest output of each window is taken: only the winners are
// multiplied.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/pooling/pooled_convolution.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

namespace detail {

/// Images with their padding, rows `pitch` apart; zeros after them, as far as a register tile may reach.
template <class T>
struct padded_images {
    pooled_convolution g;

    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t most_rows = 6;  ///< of a register tile

    [[nodiscard]] constexpr std::size_t row_numbers() const noexcept { return g.conv.kernel_columns * g.conv.channels; }
    [[nodiscard]] constexpr std::size_t pitch() const noexcept {
        const std::size_t seen =
            (g.out_columns() * g.window_columns - 1) * g.conv.stride_columns + g.conv.kernel_columns;
        return std::max(g.conv.pad_left + g.conv.columns, seen) * g.conv.channels;
    }
    [[nodiscard]] constexpr std::size_t size() const noexcept {
        const std::size_t seen = (g.out_rows() * g.window_rows - 1) * g.conv.stride_rows + g.conv.kernel_rows;
        return whole_lines<T>((std::max(g.conv.pad_top + g.conv.rows, seen) + most_rows) * pitch() + 2 * width);
    }
    /// Of the image itself.
    [[nodiscard]] constexpr std::size_t begin() const noexcept {
        return g.conv.pad_top * pitch() + g.conv.pad_left * g.conv.channels;
    }
    /// From one window to the next one below and beside it.
    [[nodiscard]] constexpr std::size_t down() const noexcept { return g.window_rows * g.conv.stride_rows * pitch(); }
    [[nodiscard]] constexpr std::size_t across() const noexcept {
        return g.window_columns * g.conv.stride_columns * g.conv.channels;
    }
};

/// Weights: vectors run along kernel rows of x. A register tile holds the sums of a few kernel rows of two vectors, of
/// one filter or of two; for each window they continue with what the winner saw.
template <class T>
struct pooled_weights : padded_images<T> {
    using images = padded_images<T>;
    using images::g;
    using images::width;
    static constexpr std::size_t rows = 5;  ///< of a register tile, or 3

    [[nodiscard]] constexpr std::size_t vectors() const noexcept { return (images::row_numbers() + width - 1) / width; }
    [[nodiscard]] constexpr std::size_t streams() const noexcept { return g.conv.filters * vectors(); }
    [[nodiscard]] constexpr std::size_t row_blocks() const noexcept { return (g.conv.kernel_rows + rows - 1) / rows; }
    [[nodiscard]] constexpr std::size_t sums_size() const noexcept {
        return whole_lines<T>(row_blocks() * streams() * rows * width);
    }
    [[nodiscard]] constexpr std::size_t share() const noexcept { return images::size() + sums_size(); }

    /// Continues the sums of `Rows` kernel rows of two streams over the windows of one sample.
    template <std::size_t Rows>
    void run(const std::array<std::size_t, 2>& stream, const T* x, const T* dy, const std::uint8_t* which,
             const std::size_t* shifts, T* left, T* right) const noexcept {
        simd::batch<T> sum[2][Rows];
        LOCKSTEP_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            sum[0][r] = simd::load(left + r * width);
            sum[1][r] = simd::load(right + r * width);
        }
        const std::size_t pitch = images::pitch();
        const std::size_t filters = g.conv.filters;
        const std::size_t across = images::across();
        const std::size_t first = stream[0] / vectors();
        const std::size_t second = stream[1] / vectors() - first;
        const auto apart = static_cast<std::ptrdiff_t>(stream[1] % vectors() * width) -
                           static_cast<std::ptrdiff_t>(stream[0] % vectors() * width);
        x += stream[0] % vectors() * width;
        dy += first;
        which += first;
        for (std::size_t row = g.out_rows(); row > 0; --row, x += images::down()) {
            const T* window = x;
            for (std::size_t column = g.out_columns(); column > 0;
                 --column, window += across, dy += filters, which += filters) {
                const T* const a = window + shifts[*which];
                const T* const b = window + shifts[which[second]] + apart;
                const simd::batch<T> gradient_a(*dy);
                const simd::batch<T> gradient_b(dy[second]);
                LOCKSTEP_UNROLL
                for (std::size_t r = 0; r < Rows; ++r) {
                    sum[0][r] = simd::fma(simd::load(a + r * pitch), gradient_a, sum[0][r]);
                    sum[1][r] = simd::fma(simd::load(b + r * pitch), gradient_b, sum[1][r]);
                }
            }
        }
        LOCKSTEP_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) {
            simd::store(left + r * width, sum[0][r]);
            simd::store(right + r * width, sum[1][r]);
        }
    }

    /// Pairs of streams `mine` over the whole batch.
    void pairs_of(parallel::block mine, std::size_t batch, const T* x, const T* dy, const std::uint8_t* which, T* dw,
                  T* scratch) const noexcept {
        const convolution& c = g.conv;
        T* const sums = scratch + images::size();
        std::fill_n(scratch, share(), T{0});
        std::array<std::size_t, 256> shifts;
        for (std::size_t i = 0; i < g.window_rows * g.window_columns; ++i)
            shifts[i] = i / g.window_columns * c.stride_rows * images::pitch() +
                        i % g.window_columns * c.stride_columns * c.channels;
        for (std::size_t sample = 0; sample < batch; ++sample, dy += g.out_size(), which += g.out_size()) {
            for (std::size_t row = 0; row < c.rows; ++row, x += c.columns * c.channels)
                std::copy_n(x, c.columns * c.channels, scratch + images::begin() + row * images::pitch());
            for (std::size_t pair = mine.first; pair < mine.last; ++pair) {
                // A stream without a second one is computed twice.
                const std::array stream{2 * pair, std::min(2 * pair + 1, streams() - 1)};
                for (std::size_t block = 0; block < row_blocks(); ++block) {
                    T* const left = sums + (block * streams() + stream[0]) * rows * width;
                    T* const right = sums + (block * streams() + stream[1]) * rows * width;
                    const T* const from = scratch + block * rows * images::pitch();
                    if (c.kernel_rows - block * rows <= 3)
                        run<3>(stream, from, dy, which, shifts.data(), left, right);
                    else
                        run<rows>(stream, from, dy, which, shifts.data(), left, right);
                }
            }
        }
        for (std::size_t stream = 2 * mine.first; stream < std::min(2 * mine.last, streams()); ++stream) {
            const std::size_t begin = stream % vectors() * width;
            for (std::size_t row = 0; row < c.kernel_rows; ++row) {
                const T* const sum = sums + ((row / rows * streams() + stream) * rows + row % rows) * width;
                for (std::size_t i = 0; i < std::min(width, images::row_numbers() - begin); ++i)
                    dw[(row * images::row_numbers() + begin + i) * c.filters + stream / vectors()] = sum[i];
            }
        }
    }
};

/// Data: a register tile holds all that the winners of one window may have seen, two vectors wide; weights are packed
/// for each column in which a winner may lie, with rows of zeros above and below, and the winner's row decides where in
/// them the tile begins.
template <class T>
struct pooled_data : padded_images<T> {
    using images = padded_images<T>;
    using images::g;
    using images::most_rows;
    using images::width;
    static constexpr std::size_t columns = 2 * width;

    /// Rows and numbers of a row that the winners of one window may see.
    [[nodiscard]] constexpr std::size_t seen_rows() const noexcept { return above() + g.conv.kernel_rows; }
    [[nodiscard]] constexpr std::size_t seen_numbers() const noexcept {
        return ((g.window_columns - 1) * g.conv.stride_columns + g.conv.kernel_columns) * g.conv.channels;
    }
    /// Rows of zeros above the weights.
    [[nodiscard]] constexpr std::size_t above() const noexcept { return (g.window_rows - 1) * g.conv.stride_rows; }
    [[nodiscard]] constexpr std::size_t place_size() const noexcept {
        return (above() + round_up(seen_rows(), most_rows)) * columns;
    }
    [[nodiscard]] constexpr std::size_t filter_size() const noexcept { return g.window_columns * place_size(); }
    [[nodiscard]] constexpr std::size_t panel_size() const noexcept { return g.conv.filters * filter_size(); }
    [[nodiscard]] constexpr std::size_t weights() const noexcept {
        return (seen_numbers() + columns - 1) / columns * panel_size();
    }

    void pack_weights(const T* w, T* to) const noexcept {
        const convolution& c = g.conv;
        std::fill_n(to, weights(), T{0});
        for (std::size_t row = 0; row < c.kernel_rows; ++row)
            for (std::size_t i = 0; i < images::row_numbers(); ++i)
                for (std::size_t column = 0; column < g.window_columns; ++column) {
                    const std::size_t at = column * c.stride_columns * c.channels + i;
                    T* place = to + at / columns * panel_size() + column * place_size() + (above() + row) * columns +
                               at % columns;
                    const T* const from = w + (row * images::row_numbers() + i) * c.filters;
                    for (std::size_t filter = 0; filter < c.filters; ++filter)
                        place[filter * filter_size()] = from[filter];
                }
    }

    /// Adds Rows x Vectors vectors of one window; `begins` is where the rows of a winner begin.
    template <std::size_t Rows, std::size_t Vectors>
    void run(const T* dy, const std::uint8_t* which, const std::size_t* begins, const T* panel, std::size_t distance,
             std::size_t pitch, T* to) const noexcept {
        simd::batch<T> sum[Rows][Vectors];
        LOCKSTEP_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) LOCKSTEP_UNROLL
        for (std::size_t v = 0; v < Vectors; ++v) sum[r][v] = simd::batch<T>(T{0});
        for (std::size_t filter = 0; filter < g.conv.filters; ++filter, panel += distance) {
            const T* const from = panel + begins[which[filter]];
            const simd::batch<T> gradient(dy[filter]);
            LOCKSTEP_UNROLL
            for (std::size_t r = 0; r < Rows; ++r) LOCKSTEP_UNROLL
            for (std::size_t v = 0; v < Vectors; ++v)
                sum[r][v] = simd::fma(simd::load(from + r * columns + v * width), gradient, sum[r][v]);
        }
        LOCKSTEP_UNROLL
        for (std::size_t r = 0; r < Rows; ++r, to += pitch) LOCKSTEP_UNROLL
        for (std::size_t v = 0; v < Vectors; ++v) simd::store(to + v * width, simd::load(to + v * width) + sum[r][v]);
    }

    /// One sample.
    void sample(const T* dy, const std::uint8_t* which, const T* panels, T* image, T* dx) const noexcept {
        const convolution& c = g.conv;
        std::array<std::size_t, 256> begins;
        for (std::size_t i = 0; i < g.window_rows * g.window_columns; ++i)
            begins[i] =
                i % g.window_columns * place_size() + (above() - i / g.window_columns * c.stride_rows) * columns;
        std::fill_n(image, images::size(), T{0});
        const std::size_t pitch = images::pitch();
        const std::size_t wide = seen_numbers();
        for (std::size_t at = 0; at < wide; at += columns, panels += panel_size())
            for (std::size_t r = 0; r < seen_rows(); r += most_rows)
                for (std::size_t column = 0; column < g.out_columns(); ++column) {
                    // Windows below each other: what two of them share lies in the same vectors, which can be read
                    // right after they were written.
                    T* to = image + column * images::across() + at + r * pitch;
                    std::size_t window = column * c.filters;
                    for (std::size_t row = g.out_rows(); row > 0;
                         --row, to += images::down(), window += g.out_columns() * c.filters)
                        if (wide - at > width)
                            run<most_rows, 2>(dy + window, which + window, begins.data(), panels + r * columns,
                                              filter_size(), pitch, to);
                        else
                            run<most_rows, 1>(dy + window, which + window, begins.data(), panels + r * columns,
                                              filter_size(), pitch, to);
                }
        for (std::size_t row = 0; row < c.rows; ++row)
            std::copy_n(image + images::begin() + row * images::pitch(), c.columns * c.channels,
                        dx + row * c.columns * c.channels);
    }
};

}  // namespace detail

/// Elements of scratch of pooled_backward_weights.
template <class T>
[[nodiscard]] constexpr std::size_t pooled_backward_weights_scratch(const pooled_convolution& g,
                                                                    parallel::team team) noexcept {
    return static_cast<std::size_t>(team.threads) * detail::pooled_weights<T>{{g}}.share();
}

/// dw and dbias (filters entries, or null) from dy and the winners that pooled_forward wrote. Each element is one chain
/// from zero over samples and windows in ascending order. Threads split dw, and each copies all of x. Cost: batch x
/// flops of the convolution / size of a window.
template <class T>
void pooled_backward_weights(const pooled_convolution& g, std::size_t batch, const T* x, const T* dy,
                             const std::uint8_t* which, T* dw, T* dbias, resources<T> use) noexcept {
    const detail::pooled_weights<T> all{{g}};
    const auto threads = static_cast<std::size_t>(use.team.threads);
    if (dbias) column_sums(batch * g.out_rows() * g.out_columns(), g.conv.filters, dy, g.conv.filters, dbias);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split((all.streams() + 1) / 2, threads, thread);
        if (!mine.empty()) all.pairs_of(mine, batch, x, dy, which, dw, use.scratch.data() + thread * all.share());
    });
}

/// Elements of scratch of pooled_backward_data.
template <class T>
[[nodiscard]] constexpr std::size_t pooled_backward_data_scratch(const pooled_convolution& g,
                                                                 parallel::team team) noexcept {
    const detail::pooled_data<T> all{{g}};
    return all.weights() + static_cast<std::size_t>(team.threads) * all.size();
}

/// dx from dy and the winners that pooled_forward wrote: the sum over windows, column after column, of chains over the
/// filters. Threads split the samples. A dy that is not finite reaches all that its window may see, not only what the
/// winner saw. Cost: batch x flops of the convolution / size of a window, and what a window's rows and columns have
/// more than a kernel's.
template <class T>
void pooled_backward_data(const pooled_convolution& g, std::size_t batch, const T* dy, const std::uint8_t* which,
                          const T* w, T* dx, resources<T> use) noexcept {
    const detail::pooled_data<T> all{{g}};
    T* const panels = use.scratch.data();
    all.pack_weights(w, panels);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(batch, static_cast<std::size_t>(use.team.threads), thread);
        T* const image = panels + all.weights() + thread * all.size();
        for (std::size_t sample = mine.first; sample < mine.last; ++sample)
            all.sample(dy + sample * g.out_size(), which + sample * g.out_size(), panels, image,
                       dx + sample * g.conv.in_size());
    });
}

LOCKSTEP_TEMPLATE(pooled_backward_weights<float>);
LOCKSTEP_TEMPLATE(pooled_backward_data<float>);

}  // namespace lockstep::kernels
