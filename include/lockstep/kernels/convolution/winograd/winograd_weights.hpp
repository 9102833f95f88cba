// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Winograd convolution F(M x M, 3 x 3): weight gradient.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/winograd/winograd.hpp"
#include "lockstep/kernels/convolution/winograd/winograd_blocks.hpp"
#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels {

namespace detail {

/// Sizes of the blocks of one call. Tiles are taken in chunks. A transformed gradient that stays in the second-level
/// cache is kept there over all chunks, and threads share out its products. A larger one is made in blocks of channels
/// x filters, which threads share out; with one chunk, each block is transformed back at once.
template <class T, std::size_t M, std::size_t Vectors>
struct winograd_weights_plan {
    using w = winograd<M>;
    using panels = line_panels<T, Vectors>;
    static constexpr std::size_t line = panels::line_size;
    static constexpr std::size_t tile_rows = line_tile_rows<T, Vectors>;
    static constexpr std::size_t line_bytes = w::products * line * sizeof(T);
    static constexpr std::size_t gradient_bytes = std::size_t{3} << 19;
    static constexpr std::size_t near_bytes = std::size_t{3} << 18;
    static constexpr std::size_t far_bytes = std::size_t{6} << 20;
    static constexpr std::size_t depth =
        16384 / (line * sizeof(T));  ///< tiles whose filters stay in the first-level cache

    std::size_t threads, channels, in_lines, out_lines;
    bool near = true;        ///< the transformed gradient stays in the second-level cache
    bool keeps = true;       ///< all of it is kept until the last chunk
    std::size_t rows = 0;    ///< channels in a block of the gradient
    std::size_t lines = 0;   ///< lines of filters in a block of the gradient
    std::size_t down = 1;    ///< blocks of channels
    std::size_t across = 1;  ///< blocks of filters
    std::size_t most = 0;    ///< tiles of a chunk, for this number of tiles and for all below
    std::size_t tiles = 0;   ///< tiles of a chunk

    constexpr winograd_weights_plan(const convolution& g, std::size_t count, parallel::team team) noexcept
        : threads{static_cast<std::size_t>(team.threads)},
          channels{g.channels},
          in_lines{line_count<T, Vectors>(g.channels)},
          out_lines{line_count<T, Vectors>(g.filters)},
          near{line_bytes * g.channels * out_lines <= gradient_bytes},
          rows{round_up(g.channels, tile_rows)},
          lines{out_lines} {
        const std::size_t tile_bytes = line_bytes * (in_lines + out_lines);
        if (near) {
            most = threads * std::max<std::size_t>(24, near_bytes / tile_bytes);
        } else {
            most = std::max<std::size_t>(128, far_bytes / tile_bytes);
            rows = std::min(rows, round_up(192, tile_rows));
            lines = std::min<std::size_t>(lines, 4);
            down = quotient_up(g.channels, rows);
            across = quotient_up(out_lines, lines);
        }
        most = std::min(most, count);
        const std::size_t chunks = quotient_up(count, most);
        tiles = quotient_up(count, chunks);
        keeps = near || chunks > 1;
    }
    [[nodiscard]] constexpr std::size_t inputs_size(std::size_t count) const noexcept {
        return panels::size(w::products, count, in_lines);
    }
    [[nodiscard]] constexpr std::size_t outputs_size(std::size_t count) const noexcept {
        return panels::size(w::products, count, out_lines);
    }
    [[nodiscard]] constexpr std::size_t block_size() const noexcept { return panels::size(w::products, rows, lines); }
    [[nodiscard]] constexpr std::size_t scratch() const noexcept {
        const std::size_t all = panels::size(w::products, round_up(channels, tile_rows), out_lines);
        const std::size_t blocks = near ? 0 : threads * block_size();
        return inputs_size(most) + outputs_size(most) + (keeps ? std::max(blocks, all) : blocks);
    }
};

template <class T, std::size_t M, std::size_t Vectors>
struct winograd_outer_products {
    using w = winograd<M>;
    using map = winograd_map<M, T>;
    using panels = line_panels<T, Vectors>;
    using plan = winograd_weights_plan<T, M, Vectors>;
    static constexpr std::size_t line = panels::line_size;
    static constexpr std::size_t tile_rows = plan::tile_rows;

    convolution g;
    tiling tiles;
    image_windows<const T, Vectors> x;
    image_windows<const T, Vectors> dy;
    T* dw = nullptr;

    /// V and the transformed dy of the tiles first, .. : rows `first` - `origin`, .. of the panels.
    void transform_inputs(parallel::block block, std::size_t origin, const panels& in,
                          const panels& out) const noexcept {
        tiles.for_each(block, [&](std::size_t tile, const tiling::position& at) {
            const auto row = static_cast<std::ptrdiff_t>(at.row);
            const auto column = static_cast<std::ptrdiff_t>(at.column);
            x.template gather<typename map::input, M>(at.sample, row - static_cast<std::ptrdiff_t>(g.pad_top),
                                                      column - static_cast<std::ptrdiff_t>(g.pad_left), in,
                                                      tile - origin);
            dy.template gather<typename map::output_transposed, M>(at.sample, row, column, out, tile - origin);
        });
    }

    using stretch = typename far_walk<T>::stretch;
    /// The sums after those of line `l` of a block; later cuts find them near.
    [[nodiscard]] static stretch next_sums(const panels& to, parallel::block lines, parallel::block which,
                                           std::size_t p, std::size_t cut, std::size_t l, std::size_t rows) noexcept {
        const bool last = l + 1 == lines.size();
        if (cut > 0 || (last && p + 1 == which.last)) return {};
        return {to.line(last ? p + 1 : p, last ? 0 : l + 1, 0), rows * line / far_walk<T>::line};
    }
    /// The tiles of some channels, all of a chunk.
    [[nodiscard]] static stretch next_inputs(const panels& in, parallel::block channels, std::size_t p) noexcept {
        return far_walk<T>::panels_of(in, p, {channels.first / line, quotient_up(channels.last, line)});
    }

    /// Products `which` of the gradient of some channels and lines of filters: dU = V^T dM, or dU += V^T dM. `to`
    /// begins at their first. What a block that is not `near` needs next is asked for beside the products.
    void multiply(parallel::block which, parallel::block channels, parallel::block lines, std::size_t count,
                  const panels& in, const panels& out, const panels& to, bool starts, bool near) const noexcept {
        const std::size_t cuts = quotient_up(count, plan::depth);
        for (std::size_t p = which.first; p < which.last; ++p)
            for (std::size_t cut = 0; cut < cuts; ++cut) {
                const parallel::block links = parallel::split(count, cuts, cut);
                for (std::size_t l = lines.first; l < lines.last; ++l) {
                    const T* const panel = out.line(p, l, links.first);
                    const T* const after = l + 1 < lines.last   ? out.line(p, l + 1, links.first)
                                           : cut + 1 < cuts     ? out.line(p, lines.first, links.last)
                                           : p + 1 < which.last ? out.line(p + 1, lines.first, 0)
                                                                : panel;
                    const std::size_t chains = quotient_up(channels.size(), tile_rows);
                    far_walk<T> far;
                    if (!near)
                        far = {next_sums(to, lines, which, p, cut, l - lines.first, channels.size()),
                               cut == 0 && p + 1 < which.last
                                   ? next_inputs(in, channels, p + 1).share(l - lines.first, lines.size())
                                   : stretch{},
                               chains * (links.size() / cache_walk<T>::links)};
                    cache_walk<T> ahead{after, links.size() * line, chains, links.size(), &far};
                    // Channels that are missing repeat the last ones, or are the zeros after them; what becomes of them
                    // is never read.
                    const auto at = [&](std::size_t c) {
                        const std::size_t channel = std::min(c, channels.last - 1) / 2 * 2;
                        return in.line(p, channel / line, links.first) + channel % line;
                    };
                    for_tiles<tile_rows, Vectors>(channels, [&](std::size_t c, auto high) {
                        const T* a[(high + 1) / 2];
                        for (std::size_t r = 0; r < high; r += 2) a[r / 2] = at(c + r);
                        const T* const next =
                            at(c + high < channels.last ? c + high + tile_rows - 1 : channels.first + tile_rows - 1);
                        multiply_lines_transposed<high, Vectors>(links.size(), a, next, panel,
                                                                 to.line(p, l - lines.first, c - channels.first),
                                                                 starts && cut == 0, ahead);
                    });
                }
            }
    }

    /// dw of some channels and lines of filters; `from` begins at their first.
    void transform_gradient(parallel::block channels, parallel::block lines, const panels& from) const noexcept {
        const std::size_t tap = g.channels * g.filters;
        alignas(simd::alignment) T copy[9 * line];
        for (std::size_t c = channels.first; c < channels.last; ++c)
            for (std::size_t l = lines.first; l < lines.last; ++l) {
                const T* const values = from.line(0, l - lines.first, c - channels.first);
                T* const to = dw + c * g.filters + l * line;
                const std::size_t wide = std::min(line, g.filters - l * line);
                if (wide == line) {
                    transform_lines<typename map::filter_transposed, Vectors>(values, from.pitch(w::tile), to,
                                                                              {3 * tap, tap});
                    continue;
                }
                transform_lines<typename map::filter_transposed, Vectors>(values, from.pitch(w::tile), copy,
                                                                          {3 * line, line});
                for (std::size_t i = 0; i < 9; ++i) std::copy_n(copy + i * line, wide, to + i * tap);
            }
    }

    void run(resources<T> use) const noexcept {
        const plan sizes{g, tiles.count(), use.team};
        const std::size_t threads = sizes.threads;
        T* const memory = use.scratch.data();
        const panels in{memory, sizes.tiles, sizes.in_lines};
        const panels out{memory + sizes.inputs_size(sizes.tiles), sizes.tiles, sizes.out_lines};
        T* const gradient = out.data + sizes.outputs_size(sizes.tiles);
        const panels kept{gradient, round_up(g.channels, tile_rows), sizes.out_lines};
        for (std::size_t first = 0; first < tiles.count(); first += sizes.tiles) {
            const std::size_t count = std::min(sizes.tiles, tiles.count() - first);
            parallel::on_each_thread(use.team, [&](std::size_t thread) {
                const parallel::block part = parallel::split(count, threads, thread);
                transform_inputs({first + part.first, first + part.last}, first, in, out);
            });
            parallel::on_each_thread(use.team, [&](std::size_t thread) {
                if (sizes.near) {
                    multiply(parallel::split(w::products, threads, thread), {0, g.channels}, {0, sizes.out_lines},
                             count, in, out, kept, first == 0, true);
                    return;
                }
                const panels own{gradient + thread * sizes.block_size(), sizes.rows, sizes.lines};
                // Of a gradient that is kept, threads may share a block: each product is a matrix of its own.
                const std::size_t parts = sizes.keeps ? w::products : 1;
                const parallel::block mine = parallel::split(sizes.down * sizes.across * parts, threads, thread);
                for (std::size_t part = mine.first, size = 0; part < mine.last; part += size) {
                    const std::size_t block = part / parts, first_part = part % parts;
                    size = std::min(parts - first_part, mine.last - part);
                    const parallel::block products =
                        sizes.keeps ? parallel::block{first_part, first_part + size} : parallel::block{0, w::products};
                    const parallel::block channels =
                        parallel::split(g.channels, sizes.down, block % sizes.down, tile_rows);
                    const parallel::block lines = parallel::split(sizes.out_lines, sizes.across, block / sizes.down);
                    const panels to =
                        sizes.keeps ? panels{kept.line(0, lines.first, channels.first), kept.rows, kept.panels} : own;
                    multiply(products, channels, lines, count, in, out, to, first == 0, false);
                    if (!sizes.keeps) transform_gradient(channels, lines, to);
                }
            });
        }
        if (!sizes.keeps) return;
        parallel::on_each_thread(use.team, [&](std::size_t thread) {
            const parallel::block channels = parallel::split(g.channels, threads, thread);
            transform_gradient(channels, {0, sizes.out_lines},
                               {kept.line(0, 0, channels.first), kept.rows, kept.panels});
        });
    }
};

}  // namespace detail

/// Elements of scratch of winograd_backward_weights for at most `batch` samples.
template <std::size_t M, class T, narrow Narrow = narrow::automatic>
[[nodiscard]] constexpr std::size_t winograd_backward_weights_scratch(const convolution& g, std::size_t batch,
                                                                      parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    return detail::with_line_vectors<T, Narrow>(g, [&](auto vectors) {
        return detail::winograd_weights_plan<T, M, vectors>{
            g, detail::tiling{M, detail::forward_sliding(g), batch}.count(), team}
            .scratch();
    });
}

/// dw = the gradient with respect to the weights, dbias (filters entries, or null) that with respect to the bias. dw =
/// G^T (sum over tiles of (B^T x B) . (A dy A^T)) G; the sum is one chain of fused multiply-adds over ascending samples
/// and tiles, so it has the bits of the same rows wherever they lie and however many threads work. dbias is that of
/// convolution_backward_weights. Threads split dw. Error: as for winograd_forward, with tiles for channels. Cost: batch
/// x flops() divided by 2.25, 4 or 5.06, transforms of x, dy and of dw.
template <std::size_t M, class T, narrow Narrow = narrow::automatic>
void winograd_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                               resources<T> use) noexcept {
    const std::size_t pixels = g.out_rows() * g.out_columns();
    if (batch == 0 || pixels == 0) {
        std::fill_n(dw, g.weight_count(), T{0});
        if (dbias) std::fill_n(dbias, g.filters, T{0});
        return;
    }
    detail::with_line_vectors<T, Narrow>(g, [&](auto vectors) {
        detail::winograd_outer_products<T, M, vectors>{g,
                                                       {M, detail::forward_sliding(g), batch},
                                                       {x, g.rows, g.columns, g.channels},
                                                       {dy, g.out_rows(), g.out_columns(), g.filters},
                                                       dw}
            .run(use);
    });
    if (!dbias) return;
    parallel::for_blocks(use.team, g.filters, simd::alignment / sizeof(T), [&](parallel::block mine) {
        column_sums(batch * pixels, mine.size(), dy + mine.first, g.filters, dbias + mine.first);
    });
}

LOCKSTEP_TEMPLATE(winograd_backward_weights<2, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<2, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<2, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<4, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<4, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<4, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<6, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<6, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_backward_weights<6, float, narrow::yes>);

}  // namespace lockstep::kernels
