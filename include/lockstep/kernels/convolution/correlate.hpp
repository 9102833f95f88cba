// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The engine of direct convolution: sliding products with packed weights.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/few_channels_forward.hpp"
#include "lockstep/kernels/convolution/padded_windows.hpp"
#include "lockstep/kernels/convolution/three_columns.hpp"
#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels::detail {

inline constexpr std::size_t block_pixels = 384;

/// Whether kernel positions are taken one by one, each with the outputs that see something there, so that padding costs
/// neither a copy nor multiplications. Depends on the sizes alone. Loading and storing a tile costs about as much as
/// five links, part of a tile as forty.
template <class T>
[[nodiscard]] constexpr bool skips_padding(const sliding& s, std::size_t n) noexcept {
    if (!s.padded() || s.links() == 0) return false;
    const std::size_t reload = n % simd::width<T> == 0 ? 5 : 40;
    std::size_t rows = 0;
    std::size_t columns = 0;
    for (std::size_t tap = 0; tap < s.taps_rows; ++tap)
        rows += inside(s.out_rows, s.stride_rows, s.origin_rows, tap * s.dilation_rows, s.rows).size();
    for (std::size_t tap = 0; tap < s.taps_columns; ++tap)
        columns +=
            inside(s.out_columns, s.stride_columns, s.origin_columns, tap * s.dilation_columns, s.columns).size();
    const auto cost = [reload](std::size_t links) {
        return links + reload * ((links + panel_depth<T> - 1) / panel_depth<T>);
    };
    return rows * columns * cost(s.depth) < s.out_rows * s.out_columns * s.taps_rows * cost(s.row_links());
}

/// How correlate cuts outputs: into whole groups of rows where the window slides over them.
template <class T>
[[nodiscard]] constexpr output_blocks correlate_blocks(const sliding& s, std::size_t n, std::size_t batch,
                                                       parallel::team team) noexcept {
    const std::size_t target = few_channels<T>::fit(s, n)          ? few_channels<T>::target
                               : three_columns<T>::fits_rows(s, n) ? three_columns<T>::rows * s.out_columns
                                                                   : block_pixels;
    return {batch, s, target, static_cast<std::size_t>(team.threads)};
}

/// Whether only the windows that see padding are copied.
template <class T>
[[nodiscard]] constexpr bool copies_padded_windows(const sliding& s, std::size_t n) noexcept {
    return padded_windows<T>::fit(s) && !few_channels<T>::fit(s, n) && !three_columns<T>::fits_rows(s, n) &&
           !skips_padding<T>(s, n);
}

/// Elements of what correlate copies, for one thread.
template <class T>
[[nodiscard]] constexpr std::size_t copy_share(const sliding& s, std::size_t n, std::size_t batch,
                                               parallel::team team) noexcept {
    const output_blocks blocks = correlate_blocks<T>(s, n, batch, team);
    if (few_channels<T>::fit(s, n)) return few_channels<T>::copy_size(s, blocks.samples, blocks.highest());
    if (copies_padded_windows<T>(s, n)) return padded_windows<T>::copy_size(s, blocks);
    return skips_padding<T>(s, n) ? 0 : window<T>::copy_size(s, blocks.samples, blocks.highest());
}

/// The ways of the direct engine that are compiled: all of them, or those that known sizes take.
struct direct_ways {
    bool lines = true;    ///< correlate from numbers sorted into lines
    bool taps = true;     ///< correlate by kernel positions
    bool edges = true;    ///< correlate from copies of the windows that see padding
    bool columns = true;  ///< three kernel columns together, in correlate and in outer_products
    bool pairs = true;    ///< outer_products of kernel columns in pairs
    bool kernel = true;   ///< outer_products with all links in one tile
    bool links = true;    ///< outer_products in tiles of links
    bool packed = true;   ///< outer_products of packed windows
    bool stride_two = true;

    static constexpr direct_ways none() noexcept {
        return {false, false, false, false, false, false, false, false, false};
    }
};

/// Adds what correlate takes for n output columns.
template <class T>
constexpr void add_ways(direct_ways& ways, const sliding& s, std::size_t n) noexcept {
    if (few_channels<T>::fit(s, n))
        ways.lines = true;
    else if (skips_padding<T>(s, n))
        ways.taps = true;
    else if (copies_padded_windows<T>(s, n))
        ways.edges = true;
    else if (three_columns<T>::fits_rows(s, n))
        ways.columns = true;
}

/// What all blocks of one convolution share: n output columns from packed weights, panels of links() x tile_columns.
template <class T>
struct correlation {
    sliding s;
    std::size_t n = 0;
    const T* x = nullptr;
    const T* panels = nullptr;
    const T* bias = nullptr;
    T* y = nullptr;
    output_pitch pitch;

    static constexpr std::size_t depth = panel_depth<T>;

    [[nodiscard]] T* output(const output_block& block) const noexcept {
        return y + block.samples.first * pitch.sample + block.rows.first * pitch.row;
    }
    template <class Rows>
    void multiply_links(std::size_t pixels, const row_chain& chain, const Rows& rows, std::size_t link,
                        bool starts) const noexcept {
        multiply(pixels, n, chain, rows, panels + link * tile_columns<T>, s.links() * tile_columns<T>, starts, bias);
    }

    /// One kernel row at a time in several cuts, or several whole ones: a panel of weights stays in the first-level
    /// cache.
    template <direct_ways Ways>
    void by_rows(const output_block& block, T* copy) const noexcept {
        const window<T> source{s, block, x, copy};
        const std::size_t pixels = block.pixels(s.out_columns);
        pixel_rows<T> rows = pixels_of(s, block, source, output(block), pitch);
        if (s.links() == 0) {
            multiply_links(pixels, {.segments = 0}, rows, 0, true);
            return;
        }
        if constexpr (simd::registers >= 32 && Ways.columns)
            if (three_columns<T>::fits_rows(s, n))
                return three_columns<T>::block(s, block, source, panels, bias, output(block), pitch);
        if (!source.side_by_side(s)) return by_positions(pixels, source, rows);
        const T* const first = rows.a;
        by_kernel_rows(s.dilation_rows * source.row_pitch, pixels, [&](std::size_t offset) {
            rows.a = first + offset;
            return rows;
        });
    }

    /// rows(offset): where the windows of all outputs go on so many numbers after their beginning.
    template <class Rows>
    void by_kernel_rows(std::size_t row_step, std::size_t pixels, const Rows& rows) const noexcept {
        const std::size_t cuts = (s.row_links() + depth - 1) / depth;
        const std::size_t together = cuts > 1 ? 1 : std::min(s.taps_rows, depth / s.row_links());
        for (std::size_t tap = 0, link = 0; tap < s.taps_rows; tap += together)
            for (std::size_t cut = 0; cut < cuts; ++cut) {
                const parallel::block part = parallel::split(s.row_links(), cuts, cut);
                const row_chain chain{std::min(together, s.taps_rows - tap), row_step, part.size(), 1, tile_columns<T>};
                multiply_links(pixels, chain, rows(tap * row_step + part.first), link, link == 0);
                link += chain.length();
            }
    }

    /// From the images themselves, and from copies of the windows that reach out of them.
    void by_edges(const output_block& block, T* copy) const noexcept {
        const padded_windows<T> all{s};
        all.copy(block, x, copy);
        // Where windows reach out of the image their addresses are not used.
        window<T> source{s};
        const std::ptrdiff_t top = static_cast<std::ptrdiff_t>(block.rows.first * s.stride_rows) + s.origin_rows;
        const std::ptrdiff_t first = top * static_cast<std::ptrdiff_t>(source.row_pitch) +
                                     s.origin_columns * static_cast<std::ptrdiff_t>(s.depth);
        source.data = x + static_cast<std::ptrdiff_t>(block.samples.first * source.sample_pitch) + first;
        const edged_rows<T> rows{all, pixels_of(s, block, source, output(block), pitch), copy, block.rows.first};
        by_kernel_rows(all.pitch(), block.pixels(s.out_columns), [&](std::size_t offset) {
            edged_rows<T> out = rows;
            out.all.a += offset;
            out.copies += offset;
            return out;
        });
    }

    /// From numbers sorted into lines.
    void by_lines(const output_block& block, T* copy, bool streamed) const noexcept {
        const few_channels<T> all{s};
        all.copy(block, x, copy);
        all.block(block, n, copy, panels, bias, output(block), pitch, streamed);
    }

    /// Kernel positions lie apart: several of a kernel row at a time, or one in several cuts.
    void by_positions(std::size_t pixels, const window<T>& source, pixel_rows<T> rows) const noexcept {
        const std::size_t step = s.dilation_columns * source.pixel_pitch;
        const std::size_t together = std::clamp<std::size_t>(depth / s.depth, 1, s.taps_columns);
        const std::size_t cuts = (s.depth + depth - 1) / depth;
        for (std::size_t i = 0, link = 0; i < s.taps_rows; ++i)
            for (std::size_t j = 0; j < s.taps_columns; j += together)
                for (std::size_t cut = 0; cut < cuts; ++cut) {
                    const parallel::block part = parallel::split(s.depth, cuts, cut);
                    const row_chain chain{std::min(together, s.taps_columns - j), step, part.size(), 1,
                                          tile_columns<T>};
                    rows.a = source.data + i * s.dilation_rows * source.row_pitch + j * step + part.first;
                    multiply_links(pixels, chain, rows, link, link == 0);
                    link += chain.length();
                }
    }

    /// One kernel position at a time, straight from the images.
    void by_taps(const output_block& block) const noexcept {
        const window<T> source{s};
        pixel_rows<T> all = pixels_of(s, block, source, output(block), pitch);
        for (std::size_t i = block.pixels(s.out_columns); i > 0; --i) {
            const T* unused = nullptr;
            T* to = nullptr;
            all.next(unused, to);
            if (bias)
                std::copy_n(bias, n, to);
            else
                std::fill_n(to, n, T{0});
        }
        const std::size_t cuts = (s.depth + depth - 1) / depth;
        for (std::size_t i = 0; i < s.taps_rows; ++i) {
            const parallel::block down = inside(s.out_rows, s.stride_rows, s.origin_rows, i * s.dilation_rows, s.rows);
            output_block part{block.samples,
                              {std::max(down.first, block.rows.first), std::min(down.last, block.rows.last)}};
            if (part.rows.first >= part.rows.last) continue;
            for (std::size_t j = 0; j < s.taps_columns; ++j) {
                const parallel::block across =
                    inside(s.out_columns, s.stride_columns, s.origin_columns, j * s.dilation_columns, s.columns);
                if (across.empty()) continue;
                sliding seen = s;
                seen.out_columns = across.size();
                pixel_rows<T> rows = pixels_of(seen, part, source, output(part) + across.first * pitch.column, pitch);
                const auto position = [](std::size_t out, std::size_t stride, std::ptrdiff_t origin,
                                         std::size_t distance) {
                    return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(out * stride + distance) + origin);
                };
                const T* first =
                    x + part.samples.first * source.sample_pitch +
                    position(part.rows.first, s.stride_rows, s.origin_rows, i * s.dilation_rows) * source.row_pitch +
                    position(across.first, s.stride_columns, s.origin_columns, j * s.dilation_columns) * s.pixel;
                for (std::size_t cut = 0; cut < cuts; ++cut) {
                    const parallel::block links = parallel::split(s.depth, cuts, cut);
                    rows.a = first + links.first;
                    multiply_links(part.pixels(across.size()), {1, 0, links.size(), 1, tile_columns<T>}, rows,
                                   (i * s.taps_columns + j) * s.depth + links.first, false);
                }
            }
        }
    }
};

/// y(r, c, .) = start + sum over taps and depth, in that order, of x(window) w, for each output pixel. Threads split
/// the pixels.
template <direct_ways Ways, class T>
void correlate(const correlation<T>& all, std::size_t batch, parallel::team team, T* copies) noexcept {
    const output_blocks blocks = correlate_blocks<T>(all.s, all.n, batch, team);
    const bool skips = Ways.taps && skips_padding<T>(all.s, all.n);
    const bool padded = Ways.edges && copies_padded_windows<T>(all.s, all.n);
    const std::size_t share = copy_share<T>(all.s, all.n, batch, team);
    const bool streamed = simd::streams(all.y, batch * all.pitch.sample, all.pitch.column);
    parallel::on_each_thread(team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(blocks.count(), static_cast<std::size_t>(team.threads), thread);
        if constexpr (simd::registers >= 32 && Ways.lines) {
            if (few_channels<T>::fit(all.s, all.n)) {
                for (std::size_t index = mine.first; index < mine.last; ++index)
                    all.by_lines(blocks[index], copies + thread * share, streamed);
                if (streamed) simd::stream_end();
                return;
            }
        }
        for (std::size_t index = mine.first; index < mine.last; ++index) {
            T* const copy = copies + thread * share;
            if constexpr (Ways.taps)
                if (skips) {
                    all.by_taps(blocks[index]);
                    continue;
                }
            if constexpr (Ways.edges)
                if (padded) {
                    all.by_edges(blocks[index], copy);
                    continue;
                }
            all.template by_rows<Ways>(blocks[index], copy);
        }
    });
}

}  // namespace lockstep::kernels::detail
