// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The engine of direct convolution: sliding products with packed weights, and the sums of outer products that give the weight gradient.

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lockstep/kernels/gemm.hpp"
#include "lockstep/kernels/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/kernels/tile.hpp"
#include "lockstep/kernels/window.hpp"

namespace lockstep::kernels::detail {

inline constexpr std::size_t block_pixels = 384;

/// Scratch for the padded windows of all threads, and of one.
template <class T>
[[nodiscard]] constexpr std::size_t window_share(const sliding& s, std::size_t batch, parallel::team team) noexcept {
    const output_blocks blocks{batch, s, block_pixels, static_cast<std::size_t>(team.threads)};
    return window<T>::copy_size(s, blocks.samples, blocks.highest());
}

/// y(r, c, .) = start + sum over taps and depth, in that order, of x(window) w, into n columns for each output pixel.
/// `panels` are the packed weights: panels of links() x tile_columns.
template <class T>
void correlate(const sliding& s, std::size_t batch, std::size_t n, const T* x, const T* panels, const T* bias, T* y, const output_pitch& pitch,
               parallel::team team, T* copies) noexcept {
    const output_blocks blocks{batch, s, block_pixels, static_cast<std::size_t>(team.threads)};
    const std::size_t share = window<T>::copy_size(s, blocks.samples, blocks.highest());
    const std::size_t panel_stride = s.links() * tile_columns<T>;
    parallel::on_each_thread(team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(blocks.count(), static_cast<std::size_t>(team.threads), thread);
        for (std::size_t index = mine.first; index < mine.last; ++index) {
            const output_block block = blocks[index];
            const window<T> source{s, block, x, copies + thread * share};
            const std::size_t pixels = block.pixels(s.out_columns);
            T* const out = y + block.samples.first * pitch.sample + block.rows.first * pitch.row;
            pixel_rows<T> rows = pixels_of(s, block, source, out, pitch);
            if (s.links() == 0) {
                multiply(pixels, n, row_chain{.segments = 0}, rows, panels, 0, true, bias);
                continue;
            }
            // One kernel row at a time in several cuts, or several whole ones: a panel of weights stays in the first-level cache.
            constexpr std::size_t depth = gemm_blocks<T>::depth;
            const std::size_t cuts = (s.row_links() + depth - 1) / depth;
            const std::size_t together = cuts > 1 ? 1 : std::min(s.taps_rows, depth / s.row_links());
            for (std::size_t tap = 0, link = 0; tap < s.taps_rows; tap += together)
                for (std::size_t cut = 0; cut < cuts; ++cut) {
                    const parallel::block part = parallel::split(s.row_links(), cuts, cut);
                    const row_chain chain{std::min(together, s.taps_rows - tap), source.row_pitch, part.size(), 1};
                    rows.a = source.data + tap * source.row_pitch + part.first;
                    multiply(pixels, n, chain, rows, panels + link * tile_columns<T>, panel_stride, link == 0, bias);
                    link += chain.length();
                }
        }
    });
}

/// Packs the elements of A for the weight gradient: for each pixel, its window's links first .. first + high - 1, in panels of tile_rows.
template <class T>
void pack_links(const sliding& s, std::size_t pixels, pixel_rows<T> walk, std::size_t row_pitch, std::size_t first, std::size_t high,
                T* to) noexcept {
    const std::size_t links = s.row_links();
    // A few pixels at a time: long enough runs on both sides, few enough streams.
    constexpr std::size_t run = 8;
    const T* from[run];
    T* unused = nullptr;
    for (std::size_t p = 0; p < pixels; p += run) {
        const std::size_t count = std::min(run, pixels - p);
        for (std::size_t q = 0; q < count; ++q) walk.next(from[q], unused);
        for (std::size_t i = 0; i < high; i += tile_rows) {
            T* panel = to + i * pixels + p * tile_rows;
            const std::size_t wide = std::min(tile_rows, high - i);
            const std::size_t tap = (first + i) / links;
            const std::size_t at = (first + i) % links;
            if (wide == tile_rows && at + tile_rows <= links) {
                const std::size_t offset = tap * row_pitch + at;
                for (std::size_t q = 0; q < count; ++q) std::memcpy(panel + q * tile_rows, from[q] + offset, tile_rows * sizeof(T));
                continue;
            }
            for (std::size_t q = 0; q < count; ++q)
                for (std::size_t r = 0; r < tile_rows; ++r) {
                    const std::size_t link = first + i + r;
                    panel[q * tile_rows + r] = r < wide ? from[q][link / links * row_pitch + link % links] : T{0};
                }
        }
    }
}

/// Rows of a weight gradient: link i of a window, and row i of dw.
template <class T>
struct link_rows {
    const T* a = nullptr;
    T* c = nullptr;
    std::size_t links = 1;
    std::size_t row_pitch = 0;
    std::size_t ldc = 0;
    std::size_t link = 0;

    void next(const T*& row_a, T*& row_c) noexcept {
        row_a = a + link / links * row_pitch + link % links;
        row_c = c;
        ++link;
        c += ldc;
    }
};

template <class T>
struct outer_blocks {
    static constexpr std::size_t rows = round_up(96, tile_rows);

    /// Scratch of one thread: its window, packed dy, packed x.
    static constexpr std::size_t pixels(const sliding& s, std::size_t batch) noexcept {
        const output_blocks blocks{batch, s, block_pixels, 1};
        return blocks.samples * blocks.highest() * s.out_columns;
    }
    static constexpr std::size_t y_size(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        return pixels(s, batch) * round_up(n, tile_columns<T>);
    }
    static constexpr std::size_t x_size(const sliding& s, std::size_t batch) noexcept {
        return whole_lines<T>(pixels(s, batch) * std::min(rows, round_up(s.links(), tile_rows)));
    }
    static constexpr std::size_t share(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        return window_share<T>(s, batch, {1}) + y_size(s, batch, n) + x_size(s, batch);
    }
};

/// dw (links x n) = sum over all output pixels, in ascending order, of (window of x) (dy)^T. Threads split dw.
template <class T>
void outer_products(const sliding& s, std::size_t batch, std::size_t n, const T* x, const T* dy, T* dw, resources<T> use) noexcept {
    using sizes = outer_blocks<T>;
    const output_blocks blocks{batch, s, block_pixels, 1};
    const grid parts = choose_grid(s.links(), n, tile_rows, tile_columns<T>, use.team);
    // Few channels: the window stays in the first-level cache, and broadcasting from it beats packing it.
    const bool direct = s.seen_rows(blocks.highest()) * s.seen_columns() * s.depth * sizeof(T) * blocks.samples <= 16384;
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block down = parallel::split(s.links(), parts.down, thread / parts.across, tile_rows);
        const parallel::block across = parallel::split(n, parts.across, thread % parts.across, tile_columns<T>);
        if (down.empty() || across.empty()) return;
        T* const copy = use.scratch.data() + thread * sizes::share(s, batch, n);
        T* const panels_y = copy + window_share<T>(s, batch, {1});
        T* const panels_x = panels_y + sizes::y_size(s, batch, n);
        for (std::size_t index = 0; index < blocks.count(); ++index) {
            const output_block block = blocks[index];
            const window<T> source{s, block, x, copy};
            const std::size_t pixels = block.pixels(s.out_columns);
            const std::size_t first_pixel = (block.samples.first * s.out_rows + block.rows.first) * s.out_columns;
            const std::size_t panel_stride = pixels * tile_columns<T>;
            pack<tile_columns<T>>(pixels, across.size(), dy + first_pixel * n + across.first, n, panels_y, panel_stride);
            T* const to = dw + down.first * n + across.first;
            if (direct && block.samples.size() == 1) {
                const row_chain chain{block.rows.size(), s.stride_rows * source.row_pitch, s.out_columns, s.stride_columns * s.depth};
                const link_rows<T> rows{source.data, to, s.row_links(), source.row_pitch, n, down.first};
                multiply(down.size(), across.size(), chain, rows, panels_y, panel_stride, index == 0, static_cast<const T*>(nullptr));
                continue;
            }
            const pixel_rows<T> walk = pixels_of<T>(s, block, source, nullptr, {});
            for (std::size_t i = 0; i < down.size(); i += sizes::rows) {
                const std::size_t high = std::min(sizes::rows, down.size() - i);
                pack_links(s, pixels, walk, source.row_pitch, down.first + i, high, panels_x);
                multiply(high, across.size(), packed_chain<T>{panels_x, pixels}, matrix_rows<T>{nullptr, 0, to + i * n, n}, panels_y,
                         panel_stride, index == 0, static_cast<const T*>(nullptr));
            }
        }
    });
}

}  // namespace lockstep::kernels::detail
