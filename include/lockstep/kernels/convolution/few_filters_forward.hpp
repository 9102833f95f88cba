// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Convolutions with few filters: vectors run along the columns of planes, one for each channel and filter, instead of
// along the filters of a pixel.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels::detail {

/// Calls f(rows constant) with a height that covers `count` rows of a tile: three heights near tile_rows, because
/// blocks are cut evenly.
template <class F>
inline void with_even_height(std::size_t count, F&& f) noexcept {
    constexpr std::size_t step = (tile_rows + 5) / 6;
    if (count <= tile_rows - 2 * step) return f(std::integral_constant<std::size_t, tile_rows - 2 * step>{});
    if (count <= tile_rows - step) return f(std::integral_constant<std::size_t, tile_rows - step>{});
    f(std::integral_constant<std::size_t, tile_rows>{});
}

/// A convolution of stride 1 whose images are copied to lines: a line is a row of one channel with its padding, and
/// zeros after it. Lines of one row lie together.
template <class T>
struct few_filters_sizes {
    convolution g;

    static constexpr std::size_t columns = tile_columns<T>;
    static constexpr std::size_t target = 1024;  ///< pixels of a block

    [[nodiscard]] constexpr sliding window() const noexcept {
        return {g.rows,
                g.columns,
                g.channels,
                g.out_rows(),
                g.out_columns(),
                g.kernel_rows,
                g.kernel_columns,
                1,
                1,
                -static_cast<std::ptrdiff_t>(g.pad_top),
                -static_cast<std::ptrdiff_t>(g.pad_left)};
    }
    [[nodiscard]] constexpr output_blocks blocks(std::size_t batch, std::size_t threads) const noexcept {
        return {batch, window(), target, threads};
    }
    /// Numbers of a line of outputs and of one of inputs: whole tiles of columns, and what their windows see.
    [[nodiscard]] constexpr std::size_t out_pitch() const noexcept { return round_up(g.out_columns(), columns); }
    [[nodiscard]] constexpr std::size_t in_pitch() const noexcept {
        return round_up(out_pitch() + g.kernel_columns - 1, simd::width<T>);
    }
    [[nodiscard]] constexpr std::size_t in_row() const noexcept { return g.channels * in_pitch(); }
    /// Of a block of so many output rows.
    [[nodiscard]] constexpr std::size_t in_size(std::size_t high) const noexcept {
        return whole_lines<T>((high + g.kernel_rows - 1) * in_row());
    }
    [[nodiscard]] constexpr std::size_t links() const noexcept { return g.kernel_rows * g.kernel_columns * g.channels; }

    /// The lines that output rows `rows` of one image see.
    void copy_in(const T* x, parallel::block rows, T* to) const noexcept {
        for (std::size_t row = rows.first; row < rows.last + g.kernel_rows - 1; ++row, to += in_row()) {
            if (row < g.pad_top || row >= g.rows + g.pad_top) {
                std::fill_n(to, in_row(), T{0});
                continue;
            }
            const T* from = x + (row - g.pad_top) * g.columns * g.channels;
            for (std::size_t channel = 0; channel < g.channels; ++channel) {
                T* const line = to + channel * in_pitch();
                T* const first = line + g.pad_left;
                std::fill(line, first, T{0});
                if (g.channels == 1)
                    std::copy_n(from, g.columns, first);
                else
                    for (std::size_t column = 0; column < g.columns; ++column)
                        first[column] = from[column * g.channels + channel];
                std::fill(first + g.columns, line + in_pitch(), T{0});
            }
        }
    }
};

/// Whether planes are quicker than vectors along the filters of a pixel, forward (weights:
/// prefers_few_filters_weights): where these would not be full, and lines are long enough. A part of a vector of
/// filters costs about ten links more than a whole one, a tile that is turned twelve. Depends on the sizes alone.
template <class T>
[[nodiscard]] constexpr bool prefers_few_filters_forward(const convolution& g) noexcept {
    constexpr std::size_t width = simd::width<T>;
    if (g.stride_rows != 1 || g.stride_columns != 1 || g.kernel_columns < 2 || g.is_dilated() || g.groups > 1)
        return false;
    if (g.filters % width == 0 || g.filters > tile_columns<T>) return false;
    const few_filters_sizes<T> sizes{g};
    const std::size_t lines = g.filters * sizes.out_pitch() / width * (sizes.links() + 12) * 5;
    const std::size_t pixels = g.out_columns() * (sizes.links() + 10) * (g.filters > width ? 10 : 8);
    return 10 * lines < 9 * pixels;
}

///     copy of x   row 0: channel 0, channel 1, .. | row 1: channel 0, ..      each with its padding, zeros after it
///     tile        filter 0: columns q .. q + 2 width - 1         weights are broadcast, x is loaded in vectors
///                 filter 1: columns q .. q + 2 width - 1
///     y           pixel q: filters 0, 1, .. | pixel q + 1: ..
/// Forward: a register tile holds a few filters of two vectors of columns. It is turned on the way out, because filters
/// lie innermost in y.
template <class T>
struct few_filters_tiles : few_filters_sizes<T> {
    using sizes = few_filters_sizes<T>;
    using sizes::columns;
    using sizes::g;

    [[nodiscard]] constexpr std::size_t filter_blocks() const noexcept {
        return (g.filters + tile_rows - 1) / tile_rows;
    }
    /// Rows of the turned tile: whole squares, and what a tile that is higher than its filters writes.
    [[nodiscard]] constexpr std::size_t turned_size() const noexcept {
        return (round_up(g.filters, simd::width<T>) + tile_rows) * columns;
    }
    [[nodiscard]] constexpr std::size_t pixels_size() const noexcept { return columns * g.filters + simd::width<T>; }
    [[nodiscard]] constexpr std::size_t share(std::size_t high) const noexcept {
        return sizes::in_size(high) + whole_lines<T>(turned_size()) + whole_lines<T>(pixels_size());
    }
    [[nodiscard]] constexpr std::size_t scratch(std::size_t batch, std::size_t threads) const noexcept {
        return whole_lines<T>(weights()) + threads * share(sizes::blocks(batch, threads).highest());
    }

    [[nodiscard]] constexpr std::size_t weights() const noexcept {
        return filter_blocks() * sizes::links() * tile_rows;
    }

    /// Weights in the order in which tiles take them, zeros where a tile is higher than its filters.
    void pack_weights(const T* w, T* to) const noexcept {
        const std::size_t blocks = filter_blocks();
        for (std::size_t part = 0; part < blocks; ++part) {
            const parallel::block mine = parallel::split(g.filters, blocks, part);
            with_even_height(mine.size(), [&](auto high) {
                for (std::size_t row = 0; row < g.kernel_rows; ++row)
                    for (std::size_t channel = 0; channel < g.channels; ++channel)
                        for (std::size_t tap = 0; tap < g.kernel_columns; ++tap, to += high) {
                            const T* from =
                                w + ((row * g.kernel_columns + tap) * g.channels + channel) * g.filters + mine.first;
                            for (std::size_t i = 0; i < high; ++i) to[i] = i < mine.size() ? from[i] : T{0};
                        }
            });
        }
    }

    /// Filters x columns of one tile; `lines` begins at the tile's first output.
    template <std::size_t Rows>
    void run(const T* lines, const T* weight, const T* bias, std::size_t count, T* to) const noexcept {
        accumulators<T, Rows, tile_vectors> tile;
        unroll<Rows>([&](auto i) LOCKSTEP_FLATTEN {
            const T start = bias && i < count ? bias[i] : T{0};
            unroll<tile_vectors>([&](auto v) LOCKSTEP_FLATTEN { tile.sum[i][v] = simd::batch<T>(start); });
        });
        const std::size_t taps = g.kernel_columns;
        for (std::size_t line = g.kernel_rows * g.channels; line > 0; --line, lines += sizes::in_pitch())
            for (std::size_t tap = 0; tap < taps; ++tap, weight += Rows)
                tile.step(lines + tap, [&](auto i) LOCKSTEP_FLATTEN { return weight[i]; });
        tile.store_tile(to);
    }

    /// Turns a tile to pixels x filters.
    void turn(const T* turned, T* to) const noexcept {
        constexpr std::size_t width = simd::width<T>;
        for (std::size_t pixel = 0; pixel < columns; pixel += width)
            for (std::size_t filter = 0; filter < g.filters; filter += width) {
                // The last square overlaps the one before it; the only one writes anything after the filters, and the
                // next pixel covers it.
                const std::size_t at = g.filters < width ? 0 : std::min(filter, g.filters - width);
                transpose_square(turned + at * columns + pixel, columns, to + pixel * g.filters + at, g.filters);
            }
    }

    void block_of(const output_block& block, const T* x, const T* packed, const T* bias, T* y,
                  T* scratch) const noexcept {
        T* const turned = scratch + sizes::in_size(block.rows.size());
        T* const pixels = turned + whole_lines<T>(turned_size());
        const std::size_t blocks = filter_blocks();
        for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample) {
            sizes::copy_in(x + sample * g.in_size(), block.rows, scratch);
            T* to = y + (sample * g.out_rows() + block.rows.first) * g.out_columns() * g.filters;
            const T* const end = to + block.rows.size() * g.out_columns() * g.filters;
            for (std::size_t row = 0; row < block.rows.size(); ++row)
                for (std::size_t first = 0; first < g.out_columns(); first += columns) {
                    const T* weight = packed;
                    for (std::size_t part = 0; part < blocks; ++part) {
                        const parallel::block mine = parallel::split(g.filters, blocks, part);
                        with_even_height(mine.size(), [&](auto high) {
                            run<high>(scratch + row * sizes::in_row() + first, weight,
                                      bias ? bias + mine.first : nullptr, mine.size(), turned + mine.first * columns);
                            weight += high * sizes::links();
                        });
                    }
                    const std::size_t count = std::min(columns, g.out_columns() - first) * g.filters;
                    // What a tile writes after its pixels is written again by the next ones, but for the last.
                    if (to + pixels_size() <= end) {
                        turn(turned, to);
                    } else {
                        turn(turned, pixels);
                        std::copy_n(pixels, count, to);
                    }
                    to += count;
                }
        }
    }
};

/// y = x * w + bias, as convolution_forward has it, with another order of the chain: kernel rows, channels, kernel
/// columns.
template <class T>
void few_filters_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                         resources<T> use) noexcept {
    const few_filters_tiles<T> all{{g}};
    const auto threads = static_cast<std::size_t>(use.team.threads);
    const output_blocks blocks = all.blocks(batch, threads);
    const std::size_t share = all.share(blocks.highest());
    T* const packed = use.scratch.data();
    T* const shares = packed + whole_lines<T>(all.weights());
    all.pack_weights(w, packed);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(blocks.count(), threads, thread);
        for (std::size_t index = mine.first; index < mine.last; ++index)
            all.block_of(blocks[index], x, packed, bias, y, shares + thread * share);
    });
}

}  // namespace lockstep::kernels::detail
