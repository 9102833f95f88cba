// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The weight gradient of direct convolution: sums over output pixels of the outer products of their windows and their
// gradients.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lockstep/kernels/convolution/correlate.hpp"
#include "lockstep/kernels/convolution/link_tile.hpp"
#include "lockstep/kernels/convolution/three_columns.hpp"
#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels::detail {

/// Elements of the padded copy of one block, for one thread.
template <class T>
[[nodiscard]] constexpr std::size_t window_share(const sliding& s, std::size_t batch, parallel::team team) noexcept {
    const output_blocks blocks{batch, s, block_pixels, static_cast<std::size_t>(team.threads)};
    return window<T>::copy_size(s, blocks.samples, blocks.highest());
}

/// Walks the links of a window: runs that are side by side in memory, `per_row` of them in each kernel row.
struct link_walk {
    std::size_t run = 1;
    std::size_t per_row = 1;
    std::size_t row_step = 0;
    std::size_t column_step = 0;
    std::size_t begin = 0;  ///< of the run, from the first link of the window on
    std::size_t at = 0;     ///< in the run
    std::size_t column = 0;

    template <class T>
    link_walk(const sliding& s, const window<T>& source, std::size_t link) noexcept
        : run{source.side_by_side(s) ? s.row_links() : s.depth},
          per_row{s.row_links() / run},
          row_step{s.dilation_rows * source.row_pitch},
          column_step{s.dilation_columns * source.pixel_pitch},
          begin{link / s.row_links() * row_step + link / run % per_row * column_step},
          at{link % run},
          column{link / run % per_row} {}

    [[nodiscard]] std::size_t offset() const noexcept { return begin + at; }
    void advance(std::size_t links) noexcept {
        for (at += links; at >= run; at -= run) {
            begin += column_step;
            if (++column < per_row) continue;
            begin += row_step - per_row * column_step;
            column = 0;
        }
    }
};

/// Packs the elements of A for the weight gradient: for each pixel, `high` links of its window from `links` on, in
/// panels of tile_rows.
template <class T>
void pack_links(std::size_t pixels, pixel_rows<T> walk, const link_walk& links, std::size_t high, T* to) noexcept {
    // A few pixels at a time: long enough runs on both sides, few enough streams.
    constexpr std::size_t run = 8;
    const T* from[run];
    T* unused = nullptr;
    for (std::size_t p = 0; p < pixels; p += run) {
        const std::size_t count = std::min(run, pixels - p);
        for (std::size_t q = 0; q < count; ++q) walk.next(from[q], unused);
        link_walk link = links;
        for (std::size_t i = 0; i < high; i += tile_rows) {
            T* panel = to + i * pixels + p * tile_rows;
            const std::size_t wide = std::min(tile_rows, high - i);
            if (wide == tile_rows && link.at + tile_rows <= link.run) {
                const std::size_t offset = link.offset();
                for (std::size_t q = 0; q < count; ++q)
                    std::memcpy(panel + q * tile_rows, from[q] + offset, tile_rows * sizeof(T));
                link.advance(tile_rows);
                continue;
            }
            std::size_t offsets[tile_rows];
            for (std::size_t r = 0; r < wide; ++r, link.advance(1)) offsets[r] = link.offset();
            for (std::size_t q = 0; q < count; ++q)
                for (std::size_t r = 0; r < tile_rows; ++r)
                    panel[q * tile_rows + r] = r < wide ? from[q][offsets[r]] : T{0};
        }
    }
}

/// Rows of a weight gradient: a link of a window, and a row of dw.
template <class T>
struct link_rows {
    const T* a = nullptr;
    T* c = nullptr;
    std::size_t ldc = 0;
    link_walk link;

    void next(const T*& row_a, T*& row_c) noexcept {
        row_a = a + link.offset();
        row_c = c;
        link.advance(1);
        c += ldc;
    }
};

template <class T>
struct outer_blocks {
    static constexpr std::size_t rows = round_up(96, tile_rows);
    static constexpr std::size_t least_pixels = 64;  ///< of a sample, where windows are read as they lie

    /// Pixels close together: broadcasting from the window beats packing it, unless each sample has so few that loading
    /// and storing sums weighs more.
    [[nodiscard]] static constexpr bool close(const sliding& s) noexcept {
        return s.stride_columns * s.pixel * sizeof(T) <= 512;
    }

    /// Few weights: blocks of half the size, whose packed dy the first level holds, cost little though each of them
    /// loads and stores all weights.
    [[nodiscard]] static constexpr bool few(const sliding& s, std::size_t n) noexcept {
        return simd::registers >= 32 && s.links() * n * sizeof(T) <= std::size_t{256} << 10;
    }
    [[nodiscard]] static constexpr output_blocks cut(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        return {batch, s, few(s, n) ? block_pixels / 2 : block_pixels, 1};
    }

    /// Scratch of one thread: its window, packed dy, packed x.
    static constexpr std::size_t pixels(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        const output_blocks blocks = cut(s, batch, n);
        return blocks.samples * blocks.highest() * s.out_columns;
    }
    static constexpr std::size_t y_size(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        return pixels(s, batch, n) * round_up(n, tile_columns<T>);
    }
    static constexpr std::size_t x_size(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        return whole_lines<T>(pixels(s, batch, n) * std::min(rows, round_up(s.links(), tile_rows)));
    }
    static constexpr std::size_t share(const sliding& s, std::size_t batch, std::size_t n) noexcept {
        return window_share<T>(s, batch, {1}) + y_size(s, batch, n) + x_size(s, batch, n);
    }
};

/// outer_products of one vector of filters and three kernel columns. Threads split kernel rows and groups of channels.
template <class T>
void three_columns_outer_products(const sliding& s, std::size_t batch, std::size_t ld, const T* x, const T* dy, T* dw,
                                  T* dbias, resources<T> use) noexcept {
    constexpr std::size_t rows = three_columns<T>::rows;
    const output_blocks blocks{batch, s, block_pixels, 1};
    const std::size_t groups = s.depth / rows;
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine =
            parallel::split(s.taps_rows * groups, static_cast<std::size_t>(use.team.threads), thread);
        if (mine.empty()) return;
        T* const copy = use.scratch.data() + thread * outer_blocks<T>::share(s, batch, simd::width<T>);
        if (dbias && mine.first == 0) std::fill_n(dbias, simd::width<T>, T{0});
        for (std::size_t index = 0; index < blocks.count(); ++index) {
            const output_block block = blocks[index];
            const window<T> source{s, block, x, copy};
            const std::size_t high = block.rows.size(), row = s.out_columns * ld;
            const T* const from = dy + (block.samples.first * s.out_rows + block.rows.first) * row;
            if (dbias && mine.first == 0)
                continue_column_sums(block.pixels(s.out_columns), simd::width<T>, from, ld, dbias);
            for (std::size_t part = mine.first; part < mine.last; ++part) {
                const std::size_t tap = part / groups, channel = part % groups * rows;
                for (std::size_t sample = 0; sample < block.samples.size(); ++sample)
                    three_columns<T>::add_outer(
                        s, high,
                        source.data + sample * source.sample_pitch + tap * s.dilation_rows * source.row_pitch + channel,
                        s.stride_rows * source.row_pitch, source.pixel_pitch, from + sample * high * row, ld,
                        dw + (tap * s.row_links() + channel) * ld, index == 0 && sample == 0);
            }
        }
    });
}

/// outer_products of a kernel whose links one tile holds. Threads split vectors of filters, of which such a kernel has
/// one: they gain where they take lanes of their own.
template <class T>
void kernel_outer_products(const sliding& s, std::size_t batch, std::size_t n, std::size_t ld, const T* x, const T* dy,
                           T* dw, T* dbias, resources<T> use) noexcept {
    constexpr std::size_t width = simd::width<T>;
    const output_blocks blocks = outer_blocks<T>::cut(s, batch, n);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(n, static_cast<std::size_t>(use.team.threads), thread, width);
        if (mine.empty()) return;
        T* const copy = use.scratch.data() + thread * outer_blocks<T>::share(s, batch, n);
        for (std::size_t link = 0; link < s.links(); ++link)
            std::fill_n(dw + link * ld + mine.first, mine.size(), T{0});
        if (dbias) std::fill_n(dbias + mine.first, mine.size(), T{0});
        for (std::size_t index = 0; index < blocks.count(); ++index) {
            const output_block block = blocks[index];
            const window<T> source{s, block, x, copy};
            for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample)
                for (std::size_t first = mine.first; first < mine.last; first += width)
                    link_tile<T>{.x = source.data + (sample - block.samples.first) * source.sample_pitch,
                                 .x_run = s.dilation_rows * source.row_pitch,
                                 .x_step = s.stride_columns * source.pixel_pitch,
                                 .x_row = s.stride_rows * source.row_pitch,
                                 .dy = dy + (sample * s.out_rows + block.rows.first) * s.out_columns * ld + first,
                                 .dy_step = ld,
                                 .rows = block.rows.size(),
                                 .columns = s.out_columns,
                                 .dw = dw + first,
                                 .dw_run = s.row_links() * ld,
                                 .ld = ld,
                                 .dbias = dbias ? dbias + first : nullptr,
                                 .wide = std::min(width, mine.last - first)}
                        .add_kernel(s.row_links());
        }
    });
}

/// The same where kernel columns are taken in pairs: on one thread.
template <class T>
void paired_outer_products(const sliding& s, std::size_t batch, std::size_t n, const T* x, const T* dy, T* dw, T* dbias,
                           T* copy) noexcept {
    const output_blocks blocks = outer_blocks<T>::cut(s, batch, n);
    T* const line = copy + window_share<T>(s, batch, {1});
    alignas(simd::alignment) T sums[link_tile<T>::most_sums]{};
    for (std::size_t index = 0; index < blocks.count(); ++index) {
        const output_block block = blocks[index];
        const window<T> source{s, block, x, copy};
        for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample)
            link_tile<T>{.x = source.data + (sample - block.samples.first) * source.sample_pitch,
                         .x_run = s.dilation_rows * source.row_pitch,
                         .x_row = s.stride_rows * source.row_pitch,
                         .dy = dy + (sample * s.out_rows + block.rows.first) * s.out_columns * n,
                         .rows = block.rows.size(),
                         .columns = s.out_columns,
                         .wide = n}
                .add_pairs(s.taps_columns, sums, line);
    }
    for (std::size_t link = 0; link < s.links(); ++link)
        std::copy_n(sums + link_tile<T>::pair_offset(s, n, link), n, dw + link * n);
    if (dbias) std::copy_n(sums + s.taps_rows * (s.taps_columns / 2 + 1) * s.depth * simd::width<T>, n, dbias);
}

/// Links `down` of a weight gradient times whole panels of dy, in tiles that end where kernel rows do.
template <class T>
void add_links(const sliding& s, const window<T>& source, const row_chain& chain, const T* x, parallel::block down,
               std::size_t n, const T* panels, std::size_t panel_stride, T* dw, std::size_t ld, bool starts) noexcept {
    for (std::size_t first = 0; first < n; first += tile_columns<T>, panels += panel_stride)
        for (std::size_t link = down.first; link < down.last;) {
            const std::size_t run = std::min(down.last, (link / s.row_links() + 1) * s.row_links()) - link;
            const std::size_t count = run / ((run + high_tile - 1) / high_tile);
            T* const to = dw + (link - down.first) * ld + first;
            link_tile<T>::with_links(
                count,
                [&](auto links) {
                    if (starts)
                        for (std::size_t i = 0; i < links; ++i) std::fill_n(to + i * ld, tile_columns<T>, T{0});
                    link_tile<T>{
                        .x = x + link / s.row_links() * s.dilation_rows * source.row_pitch + link % s.row_links(),
                        .x_step = chain.step,
                        .x_row = chain.segment_stride,
                        .dy = panels,
                        .dy_step = chain.b_step,
                        .rows = chain.segments,
                        .columns = chain.count,
                        .dw = to,
                        .ld = ld}
                        .template run<1, links, 2>();
                },
                [&] {
                    multiply(count, tile_columns<T>, chain, link_rows<T>{x, to, ld, {s, source, link}}, panels,
                             panel_stride, starts, static_cast<const T*>(nullptr));
                });
            link += count;
        }
}

/// Adds what outer_products takes for n of ld filters.
template <class T>
constexpr void add_outer_ways(direct_ways& ways, const sliding& s, std::size_t n, std::size_t ld) noexcept {
    if (three_columns<T>::fits(s, n)) {
        ways.columns = true;
    } else if (link_tile<T>::pairs_columns(s, n) && ld == n) {
        ways.pairs = true;
    } else if (link_tile<T>::holds_kernel(s, n)) {
        ways.kernel = true;
    } else {
        ways.links = outer_blocks<T>::few(s, n) && n >= tile_columns<T>;
        ways.packed = !outer_blocks<T>::close(s) || s.out_rows * s.out_columns < outer_blocks<T>::least_pixels;
    }
}

/// dw (links x n) = sum over all output pixels, in ascending order, of (window of x) (dy)^T, and dbias (or null) the
/// sum of dy. The rows of dw and of dy are ld apart. Threads split dw.
template <direct_ways Ways, class T>
void outer_products(const sliding& s, std::size_t batch, std::size_t n, std::size_t ld, const T* x, const T* dy, T* dw,
                    T* dbias, resources<T> use) noexcept {
    using sizes = outer_blocks<T>;
    const output_blocks blocks = sizes::cut(s, batch, n);
    const grid parts = choose_grid(s.links(), n, tile_rows, tile_columns<T>, use.team);
    if constexpr (simd::registers >= 32 && Ways.columns)
        if (three_columns<T>::fits(s, n)) return three_columns_outer_products(s, batch, ld, x, dy, dw, dbias, use);
    if constexpr (simd::registers >= 32 && Ways.pairs)
        if (link_tile<T>::pairs_columns(s, n) && ld == n)
            return paired_outer_products(s, batch, n, x, dy, dw, dbias, use.scratch.data());
    if constexpr (simd::registers >= 32 && Ways.kernel)
        if (link_tile<T>::holds_kernel(s, n)) return kernel_outer_products(s, batch, n, ld, x, dy, dw, dbias, use);
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
            const T* from =
                dy + (block.samples.first * s.out_rows + block.rows.first) * s.out_columns * ld + across.first;
            T* const to = dw + down.first * ld + across.first;
            if (dbias && down.first == 0) {
                if (index == 0) std::fill_n(dbias + across.first, across.size(), T{0});
                continue_column_sums(pixels, across.size(), from, ld, dbias + across.first);
            }
            const bool cuts = sizes::few(s, n) && across.size() % tile_columns<T> == 0;
            const bool direct =
                !Ways.packed || (sizes::close(s) &&
                                 (block.samples.size() == 1 || pixels / block.samples.size() >= sizes::least_pixels));
            // Few rows of dw: dy is read so few times that a packed copy does not pay, and one panel is packed already.
            // Whole vectors only: none may reach beyond the end.
            const bool direct_y = direct && across.size() % simd::width<T> == 0 &&
                                  (down.size() <= 8 * tile_rows || ld == tile_columns<T>);
            const std::size_t panel_stride = direct_y ? tile_columns<T> : pixels * tile_columns<T>;
            if (!direct_y) pack<tile_columns<T>>(pixels, across.size(), from, ld, panels_y, panel_stride);
            if (direct) {
                const row_chain chain{block.rows.size(), s.stride_rows * source.row_pitch, s.out_columns,
                                      s.stride_columns * source.pixel_pitch, direct_y ? ld : tile_columns<T>};
                for (std::size_t sample = 0; sample < block.samples.size(); ++sample) {
                    const T* const images = source.data + sample * source.sample_pitch;
                    const T* const panels = (direct_y ? from : panels_y) + sample * chain.length() * chain.b_step;
                    const bool starts = index == 0 && sample == 0;
                    if constexpr (simd::registers >= 32 && Ways.links) {
                        if (cuts && source.side_by_side(s)) {
                            add_links(s, source, chain, images, down, across.size(), panels, panel_stride, to, ld,
                                      starts);
                            continue;
                        }
                    }
                    const link_rows<T> rows{images, to, ld, {s, source, down.first}};
                    multiply(down.size(), across.size(), chain, rows, panels, panel_stride, starts,
                             static_cast<const T*>(nullptr));
                }
                continue;
            }
            if constexpr (Ways.packed) {
                const pixel_rows<T> walk = pixels_of<T>(s, block, source, nullptr, {});
                for (std::size_t i = 0; i < down.size(); i += sizes::rows) {
                    const std::size_t high = std::min(sizes::rows, down.size() - i);
                    pack_links(pixels, walk, {s, source, down.first + i}, high, panels_x);
                    multiply(high, across.size(), packed_chain<T>{panels_x, pixels},
                             matrix_rows<T>{nullptr, 0, to + i * ld, ld}, panels_y, panel_stride, index == 0,
                             static_cast<const T*>(nullptr));
                }
            }
        }
    });
}

}  // namespace lockstep::kernels::detail
