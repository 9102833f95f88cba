// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The weight gradient of few filters: planes of x and dy multiplied vector by vector, each element of a vector a
// partial sum of its own.

#include <algorithm>
#include <array>
#include <cstddef>

#include "lockstep/kernels/convolution/few_filters_forward.hpp"

namespace lockstep::kernels::detail {

/// Which partial sum a column falls into depends on the column of its row alone: element e of a vector has columns e,
/// e + width, ..
///     x line of a link    x0 x1 .. x7 | x8 x9 .. x15 |         vectors of 8
///                          *  *     *    *  *     *
///     dy line of a filter d0 d1 .. d7 | d8 d9 .. d15 | 0 ..    zeros after the columns of a row
///     partial sums        s0 s1 .. s7                          added in pairs at the end: ((s0 + s1) + (s2 + s3)) + ..
/// dw[link][filter] = sum over the elements of a vector, in pairs of neighbours, of chains over samples, rows and
/// vectors of a row.
template <class T>
struct few_filters_weights : few_filters_sizes<T> {
    using sizes = few_filters_sizes<T>;
    using sizes::g;
    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t together = 2;  ///< filters of a register tile

    [[nodiscard]] constexpr std::size_t link_blocks() const noexcept {
        return (sizes::links() + tile_rows - 1) / tile_rows;
    }
    [[nodiscard]] constexpr std::size_t filter_planes() const noexcept { return round_up(g.filters, together); }
    /// Vectors of partial sums of one thread: blocks of links, filters in pairs. A block may be higher than its links.
    [[nodiscard]] constexpr std::size_t sums_size() const noexcept {
        return link_blocks() * tile_rows * filter_planes() * width;
    }
    /// Planes of dy: lines of inputs and outputs are equally long, so one index serves both.
    [[nodiscard]] constexpr std::size_t plane(std::size_t high) const noexcept { return high * sizes::in_pitch(); }
    [[nodiscard]] constexpr std::size_t share(std::size_t high) const noexcept {
        return sizes::in_size(high) + whole_lines<T>(round_up(g.filters, width) * plane(high)) + sums_size() +
               filter_planes() * width;
    }
    [[nodiscard]] constexpr std::size_t scratch(std::size_t batch, std::size_t threads) const noexcept {
        return threads * share(sizes::blocks(batch, 1).highest());
    }

    /// dy of a few rows of one sample, filter after filter; zeros after the columns, up to a whole vector.
    void copy_out(const T* dy, std::size_t high, const T* end, T* planes) const noexcept {
        for (std::size_t row = 0; row < high; ++row)
            for (std::size_t column = 0; column < g.out_columns(); column += width) {
                T* const to = planes + row * sizes::in_pitch() + column;
                const std::size_t count = std::min(width, g.out_columns() - column);
                const T* const from = dy + (row * g.out_columns() + column) * g.filters;
                for (std::size_t filter = 0; filter < g.filters; filter += width) {
                    T* const first = to + filter * plane(high);
                    const std::size_t some = std::min(width, g.filters - filter);
                    // Squares read beyond the columns and beyond the filters of a pixel.
                    if (width * g.filters + width <= static_cast<std::size_t>(end - from))
                        transpose_square(from + filter, g.filters, first, plane(high));
                    else
                        for (std::size_t i = 0; i < count; ++i)
                            for (std::size_t f = 0; f < some; ++f)
                                first[f * plane(high) + i] = from[i * g.filters + filter + f];
                    for (std::size_t f = 0; count < width && f < some; ++f)
                        std::fill(first + f * plane(high) + count, first + f * plane(high) + width, T{0});
                }
            }
    }

    /// Continues the sums of Rows links and two filters over some rows of outputs. `x` are the links' first numbers.
    template <std::size_t Rows>
    void run(const T* const* x, const T* dy, const T* next_dy, std::size_t high, T* sums) const noexcept {
        accumulators<T, Rows, together> tile;
        tile.load_tile(sums);
        const T* from[Rows];
        unroll<Rows>([&](auto i) LOCKSTEP_FLATTEN { from[i] = x[i]; });
        const std::size_t vectors = (g.out_columns() + width - 1) / width;
        for (std::size_t row = 0; row < high; ++row) {
            for (std::size_t at = 0; at < vectors * width; at += width) {
                const simd::batch<T> left = simd::load(dy + at);
                const simd::batch<T> right = simd::load(next_dy + at);
                unroll<Rows>([&](auto i) LOCKSTEP_FLATTEN {
                    simd::batch<T> value = simd::load(from[i] + at);
                    simd::pin(value);
                    tile.sum[i][0] = simd::fma(value, left, tile.sum[i][0]);
                    tile.sum[i][1] = simd::fma(value, right, tile.sum[i][1]);
                });
            }
            unroll<Rows>([&](auto i) LOCKSTEP_FLATTEN { from[i] += sizes::in_row(); });
            dy += sizes::in_pitch();
            next_dy += sizes::in_pitch();
        }
        tile.store_tile(sums);
    }

    /// Continues the sums of dy itself.
    void add_bias(const T* planes, std::size_t high, T* sums) const noexcept {
        for (std::size_t filter = 0; filter < g.filters; filter += tile_rows) {
            const std::size_t count = std::min(tile_rows, g.filters - filter);
            simd::batch<T> sum[tile_rows];
            const T* from[tile_rows];
            unroll<tile_rows>([&](auto i) LOCKSTEP_FLATTEN {
                const std::size_t which = filter + std::min<std::size_t>(i, count - 1);
                sum[i] = simd::load(sums + which * width);
                from[i] = planes + which * plane(high);
            });
            for (std::size_t row = 0; row < high; ++row)
                for (std::size_t column = 0; column < g.out_columns(); column += width)
                    unroll<tile_rows>([&](auto i) LOCKSTEP_FLATTEN {
                        sum[i] = sum[i] + simd::load(from[i] + row * sizes::in_pitch() + column);
                    });
            for (std::size_t i = 0; i < count; ++i) simd::store(sums + (filter + i) * width, sum[i]);
        }
    }

    /// Neighbours are added, then neighbouring pairs, and so on.
    [[nodiscard]] static T total(const T* sums) noexcept {
        std::array<T, width> rest;
        std::copy_n(sums, width, rest.begin());
        for (std::size_t count = width / 2; count > 0; count /= 2)
            for (std::size_t i = 0; i < count; ++i) rest[i] = rest[2 * i] + rest[2 * i + 1];
        return rest[0];
    }

    /// The links of `mine`, a run of blocks of links, over the whole batch; dbias may be null.
    void links_of(parallel::block mine, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                  T* scratch) const noexcept {
        const output_blocks blocks = sizes::blocks(batch, 1);
        const T* const end = dy + batch * g.out_size();
        T* const planes = scratch + sizes::in_size(blocks.highest());
        T* const sums = planes + whole_lines<T>(round_up(g.filters, width) * plane(blocks.highest()));
        T* const bias_sums = sums + sums_size();
        std::fill_n(sums, sums_size() + filter_planes() * width, T{0});
        const std::size_t pair_size = tile_rows * together * width;
        const std::size_t pairs = filter_planes() / together;
        for (std::size_t index = 0; index < blocks.count(); ++index) {
            const output_block block = blocks[index];
            const std::size_t high = block.rows.size();
            for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample) {
                sizes::copy_in(x + sample * g.in_size(), block.rows, scratch);
                copy_out(dy + (sample * g.out_rows() + block.rows.first) * g.out_columns() * g.filters, high, end,
                         planes);
                if (dbias) add_bias(planes, high, bias_sums);
                for (std::size_t part = mine.first; part < mine.last; ++part) {
                    const parallel::block links = parallel::split(sizes::links(), link_blocks(), part);
                    const T* from[tile_rows];
                    for (std::size_t i = 0; i < tile_rows; ++i) {
                        // Links that are missing repeat the last one.
                        const std::size_t link = std::min(links.first + i, links.last - 1);
                        const std::size_t tap = link / g.channels;
                        from[i] = scratch + tap / g.kernel_columns * sizes::in_row() +
                                  link % g.channels * sizes::in_pitch() + tap % g.kernel_columns;
                    }
                    with_even_height(links.size(), [&](auto rows) {
                        for (std::size_t pair = 0; pair < pairs; ++pair) {
                            const T* first = planes + pair * together * plane(high);
                            const T* second = pair * together + 1 < g.filters ? first + plane(high) : first;
                            run<rows>(from, first, second, high, sums + (part * pairs + pair) * pair_size);
                        }
                    });
                }
            }
        }
        for (std::size_t part = mine.first; part < mine.last; ++part) {
            const parallel::block links = parallel::split(sizes::links(), link_blocks(), part);
            for (std::size_t link = links.first; link < links.last; ++link)
                for (std::size_t filter = 0; filter < g.filters; ++filter)
                    dw[link * g.filters + filter] =
                        total(sums + (part * pairs + filter / together) * pair_size +
                              ((link - links.first) * together + filter % together) * width);
        }
        for (std::size_t filter = 0; dbias && filter < g.filters; ++filter)
            dbias[filter] = total(bias_sums + filter * width);
    }
};

/// dw and dbias (or null), as convolution_backward_weights has them, with other orders of the sums: see
/// few_filters_weights. Threads split the links, and each copies all of x and dy. A number that is not finite reaches
/// other positions of its kernel row, too.
template <class T>
void few_filters_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                                  resources<T> use) noexcept {
    const few_filters_weights<T> all{{g}};
    const auto threads = static_cast<std::size_t>(use.team.threads);
    const std::size_t share = all.share(all.blocks(batch, 1).highest());
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(all.link_blocks(), threads, thread);
        if (!mine.empty())
            all.links_of(mine, batch, x, dy, dw, mine.first == 0 ? dbias : nullptr,
                         use.scratch.data() + thread * share);
    });
}

}  // namespace lockstep::kernels::detail
