// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Winograd convolution F(M x M, 3 x 3) for kernels of 3 x 3 and stride 1: forward pass and data gradient.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/winograd/winograd_blocks.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels {

/// Kernels of 3 x 3 with stride 1, any padding.
[[nodiscard]] constexpr bool winograd_applies(const convolution& g) noexcept {
    return g.kernel_rows == 3 && g.kernel_columns == 3 && g.stride_rows == 1 && g.stride_columns == 1 &&
           !g.is_dilated() && g.groups == 1;
}

namespace detail {

/// Sizes of the blocks of one call. Where the transformed filters stay in the second-level cache, threads share out the
/// tiles, in blocks that stay there as well. Else blocks of tiles are large, so that filters come from far away rarely,
/// and threads share out the filters. Where all tiles fit into one block, filters are transformed a few at a time; for
/// several blocks, all of them once.
template <class T, std::size_t M, std::size_t Vectors>
struct winograd_plan {
    using w = winograd<M>;
    using panels = line_panels<T, Vectors>;
    static constexpr std::size_t line = panels::line_size;
    static constexpr std::size_t tile_rows = line_tile_rows<T, Vectors>;
    static constexpr std::size_t line_bytes = w::products * line * sizeof(T);
    static constexpr std::size_t filter_bytes = std::size_t{3}
                                                << 19;  ///< of transformed filters in the second-level cache
    static constexpr std::size_t near_bytes = std::size_t{3} << 17;   ///< of tiles and products there
    static constexpr std::size_t far_bytes = std::size_t{28} << 20;   ///< of all tiles in the cache after it
    static constexpr std::size_t kept_bytes = std::size_t{12} << 20;  ///< of a block of tiles there, beside all filters
    static constexpr std::size_t far_lines =
        256 / (line * sizeof(T));  ///< of outputs whose products stay near for a block of them
    /// Lines of channels whose filters stay in the first-level cache, beside the tiles that are multiplied with them
    /// now and next.
    static constexpr std::size_t link_bytes = (line + 2 * tile_rows) * sizeof(T);
    static constexpr std::size_t depth_lines = 4 * (30720 / link_bytes / (4 * line));
    static constexpr std::size_t raw_depth = 32;
    static constexpr std::size_t raw_size = 9 * raw_depth * line;  ///< packed filters on the way to their transform

    std::size_t depth, threads, in_lines, all_lines;
    bool near = true;   ///< blocks for the second-level cache
    bool keeps = true;  ///< all filters are transformed first
    bool in_order =
        false;  ///< images are asked for in their order beside the products; else each window asks for the next one
    std::size_t out_lines = 0;  ///< lines of outputs of a block
    std::size_t whole = 0;      ///< tiles of the only block, for this number of samples or for less
    std::size_t most = 0;       ///< tiles of a block, for this number of samples and for all below
    std::size_t tiles = 0;      ///< tiles of a block

    constexpr winograd_plan(const sliding& s, std::size_t n, std::size_t batch, parallel::team team) noexcept
        : depth{s.depth},
          threads{static_cast<std::size_t>(team.threads)},
          in_lines{line_count<T, Vectors>(s.depth)},
          all_lines{line_count<T, Vectors>(n)},
          near{line_bytes * s.depth * all_lines <= filter_bytes || all_lines < 2 * threads} {
        const std::size_t count = tiling{M, s, batch}.count();
        if (near) {
            out_lines = all_lines;
            most = std::max<std::size_t>(24, near_bytes / (line_bytes * (in_lines + all_lines)));
            tiles = most = std::min(most, quotient_up(count, threads));
            // Windows at an edge ask for nothing, and small images have many. Rows of large ones would take the place
            // of the tiles.
            in_order = s.depth >= line &&
                       (w::tile * s.columns * s.depth + M * s.out_columns * n) * sizeof(T) <= near_bytes / 4;
        } else {
            out_lines = std::min(far_lines, all_lines / threads);
            const std::size_t tile_bytes = line_bytes * in_lines;
            whole = std::min(std::clamp<std::size_t>(far_bytes / tile_bytes, 96, 448), count);
            keeps = count > whole;
            most = keeps ? std::clamp<std::size_t>(kept_bytes / tile_bytes, 96, 384) : count;
            tiles = quotient_up(count, quotient_up(count, most));
        }
        whole = round_up(whole, tile_rows);
        most = round_up(most, tile_rows);
        tiles = round_up(tiles, tile_rows);
    }
    [[nodiscard]] constexpr std::size_t inputs_size(std::size_t rows) const noexcept {
        return panels::size(w::products, rows, in_lines);
    }
    [[nodiscard]] constexpr std::size_t products_size(std::size_t rows) const noexcept {
        return panels::size(w::products, rows, out_lines);
    }
    [[nodiscard]] constexpr std::size_t filters_size(std::size_t lines) const noexcept {
        return panels::size(w::products, depth, lines);
    }
    /// Scratch of one thread: raw filters, products, and its tiles or its filters.
    [[nodiscard]] constexpr std::size_t share(std::size_t rows) const noexcept {
        return raw_size + products_size(rows) + (near ? inputs_size(rows) : keeps ? 0 : filters_size(out_lines));
    }
    [[nodiscard]] constexpr std::size_t scratch() const noexcept {
        if (near) return filters_size(all_lines) + threads * share(most);
        const std::size_t few = threads * filters_size(out_lines);
        const auto sum = [&](std::size_t rows, std::size_t filters) {
            return inputs_size(rows) + threads * (raw_size + products_size(rows)) + filters;
        };
        return std::max(sum(whole, few), keeps ? sum(most, std::max(few, filters_size(all_lines))) : 0);
    }
};

/// One convolution with stride 1: n outputs for each pixel, from 3 x 3 x depth inputs.
template <class T, std::size_t M, std::size_t Vectors>
struct winograd_correlation {
    using w = winograd<M>;
    using map = winograd_map<M, T>;
    using panels = line_panels<T, Vectors>;
    using plan = winograd_plan<T, M, Vectors>;
    static constexpr std::size_t line = panels::line_size;
    static constexpr std::size_t tile_rows = plan::tile_rows;

    sliding s;
    std::size_t n = 0;
    tiling tiles;
    image_windows<const T, Vectors> x;
    const T* weights = nullptr;
    bool reversed =
        false;  ///< weights are taps x n x depth and are read from the last tap to the first; else taps x depth x n
    image_windows<T, Vectors> y;
    const T* bias = nullptr;

    /// U of the outputs of `lines`. Weights are packed in short runs of whole lines of the cache; the next ones are
    /// asked for meanwhile.
    void transform_filters(parallel::block lines, const panels& to, T* raw) const noexcept {
        constexpr std::size_t tap_size = plan::raw_depth * line;
        const std::size_t together = reversed ? 1 : 4;
        const std::size_t step = plan::raw_depth / together;
        constexpr std::size_t fetched = simd::alignment / sizeof(T);
        constexpr std::size_t parts = quotient_up(line, fetched);
        for (std::size_t l = lines.first; l < lines.last; l += together) {
            const std::size_t count = std::min(together, lines.last - l);
            const std::size_t out = l * line;
            const std::size_t wide = std::min(count * line, n - out);
            for (std::size_t c = 0; c < s.depth; c += step) {
                const std::size_t deep = std::min(step, s.depth - c);
                for (std::size_t tap = 0; tap < 9; ++tap)
                    if (reversed)
                        pack_transposed<line>(deep, wide, weight(tap, c, out), s.depth, raw + tap * tap_size,
                                              step * line);
                    else
                        pack<line>(deep, wide, weight(tap, c, out), n, raw + tap * tap_size, step * line);
                const bool more = c + 2 * step <= s.depth;
                for (std::size_t q = 0; q < count; ++q)
                    for (std::size_t i = 0; i < deep; ++i) {
                        if (more)
                            for (std::size_t tap = 0; tap < 9; ++tap)
                                for (std::size_t k = i * parts; k < (i + 1) * parts; ++k)
                                    __builtin_prefetch(reversed ? weight(tap, c + step + k * fetched % step,
                                                                         std::min(out + k * fetched / step, n - 1))
                                                                : weight(tap, c + step + i, out + q * line) +
                                                                      k % parts * fetched);
                        fetch_lines<Vectors, w::tile, w::tile, true>(to.line(0, l - lines.first + q, c + i + 1),
                                                                     to.pitch(w::tile));
                        transform_lines<typename map::filter, Vectors>(
                            raw + (q * step + i) * line, {3 * tap_size, tap_size},
                            to.line(0, l - lines.first + q, c + i), to.pitch(w::tile));
                    }
            }
        }
    }
    [[nodiscard]] const T* weight(std::size_t tap, std::size_t c, std::size_t out) const noexcept {
        return weights + (reversed ? ((8 - tap) * n + out) * s.depth + c : (tap * s.depth + c) * n + out);
    }

    /// V of the tiles first, .. : rows `first` - `origin`, .. of the panels.
    void transform_inputs(parallel::block block, std::size_t origin, const panels& to, bool fetches) const noexcept {
        tiles.for_each(block, [&](std::size_t tile, const tiling::position& at) {
            x.template gather<typename map::input, M>(at.sample, static_cast<std::ptrdiff_t>(at.row) + s.origin_rows,
                                                      static_cast<std::ptrdiff_t>(at.column) + s.origin_columns, to,
                                                      tile - origin, fetches);
        });
    }

    /// Rows that complete the last register tile.
    static void clear_rows(parallel::block rows, const panels& to) noexcept {
        if (rows.empty()) return;
        for (std::size_t p = 0; p < w::products; ++p)
            for (std::size_t l = 0; l < to.panels; ++l)
                std::fill_n(to.line(p, l, rows.first), rows.size() * line, T{0});
    }

    /// M = V U for `count` rows and `lines` lines of outputs. What a block that is not `near` needs next is asked for
    /// beside the products.
    void multiply(std::size_t count, std::size_t lines, const panels& v, const panels& u, const panels& m,
                  far_walk<T> far, bool near) const noexcept {
        constexpr std::size_t step = plan::depth_lines;
        for (std::size_t p = 0; p < w::products; ++p)
            for (std::size_t first = 0; first < v.panels; first += step) {
                const std::size_t links = std::min(step * line, s.depth - first * line);
                const bool last = first + step >= v.panels;
                for (std::size_t l = 0; l < lines; ++l) {
                    const T* const panel = u.line(p, l, first * line);
                    // The panel that comes next.
                    const T* const after = l + 1 < lines         ? u.line(p, l + 1, first * line)
                                           : !last               ? u.line(p, 0, (first + step) * line)
                                           : p + 1 < w::products ? u.line(p + 1, 0, 0)
                                                                 : panel;
                    const std::size_t chains = quotient_up(count, tile_rows);
                    if (!near)
                        far = {next_sums(m, lines, p, first, l), next_tiles(v, p, first).share(l, lines),
                               chains * (links / line * line) / cache_walk<T>::links};
                    cache_walk<T> ahead{after, links * line, chains, links, &far};
                    for_tiles<tile_rows, Vectors>({0, count}, [&](std::size_t row, auto high) {
                        multiply_lines<high, Vectors>(links, v.line(p, first, row), v.rows * line, panel,
                                                      m.line(p, l, row), first == 0, ahead);
                    });
                }
            }
    }

    using stretch = typename far_walk<T>::stretch;
    /// The sums that start after those of one line of outputs; later steps find them near.
    [[nodiscard]] static stretch next_sums(const panels& m, std::size_t lines, std::size_t p, std::size_t first,
                                           std::size_t l) noexcept {
        if (first > 0) return {};
        return l + 1 < lines         ? far_walk<T>::panels_of(m, p, {l + 1, l + 2})
               : p + 1 < w::products ? far_walk<T>::panels_of(m, p + 1, {0, 1})
                                     : stretch{};
    }
    /// The tiles that the next step reads.
    [[nodiscard]] static stretch next_tiles(const panels& v, std::size_t p, std::size_t first) noexcept {
        constexpr std::size_t step = plan::depth_lines;
        const bool last = first + step >= v.panels;
        if (last && p + 1 == w::products) return {};
        const std::size_t from = last ? 0 : first + step;
        return far_walk<T>::panels_of(v, last ? p + 1 : p, {from, std::min(v.panels, from + step)});
    }

    /// Outputs far larger than the caches are stored past them, in whole lines of them.
    [[nodiscard]] bool streamed() const noexcept {
        return line * sizeof(T) % simd::alignment == 0 &&
               simd::streams(y.data, tiles.batch * y.rows * y.columns * y.depth, y.depth);
    }

    /// Beside the products of a block: the outputs that they are for, and what the next block reads.
    [[nodiscard]] far_walk<T> ahead_of(parallel::block block, parallel::block next) const noexcept {
        const std::size_t chains = w::products * quotient_up(block.size(), tile_rows) * line_count<T, Vectors>(n);
        const std::size_t links = s.depth / line * line;  // what is left of the depth takes no turns
        return {streamed() ? stretch{} : y.shares_of(tiles, block, M), x.shares_of(tiles, next, w::tile),
                chains * links / cache_walk<T>::links};
    }

    void transform_outputs(parallel::block block, parallel::block lines, const panels& from,
                           bool fetches) const noexcept {
        using batch = simd::batch<T>;
        const batch zero(T{0});
        const bool past = streamed();
        const auto store = [&](auto finish) {
            tiles.for_each(block, [&](std::size_t tile, const tiling::position& at) {
                y.template scatter<typename map::output>(at.sample, at.row, at.column, lines, from, tile - block.first,
                                                         finish, fetches, past);
            });
        };
        // Entries of the bias after its end are never read: the last, partial line comes from a copy.
        alignas(simd::alignment) T rest[line]{};
        const std::size_t whole = n / line * line;
        if (bias) std::copy_n(bias + whole, n - whole, rest);
        const auto start = [&](std::size_t c) LOCKSTEP_FLATTEN {
            return bias ? simd::load(c < whole ? bias + c : rest + (c - whole)) : zero;
        };
        store([&](const batch& value, std::size_t c) LOCKSTEP_FLATTEN { return value + start(c); });
        if (past) simd::stream_end();
    }

    void run(std::size_t batch, resources<T> use) const noexcept {
        const plan sizes{s, n, batch, use.team};
        const std::size_t threads = sizes.threads;
        const std::size_t share = sizes.share(sizes.tiles);
        const panels u{use.scratch.data(), s.depth, sizes.all_lines};
        T* const common = u.data + (sizes.keeps ? sizes.filters_size(sizes.all_lines) : 0);
        T* const own = common + (sizes.near ? 0 : sizes.inputs_size(sizes.tiles));
        if (sizes.keeps)
            parallel::on_each_thread(use.team, [&](std::size_t thread) {
                const parallel::block lines = parallel::split(sizes.all_lines, threads, thread);
                transform_filters(lines, u.from(lines.first), own + thread * share);
            });
        if (sizes.near) {
            parallel::on_each_thread(use.team, [&](std::size_t thread) {
                const parallel::block all = parallel::split(tiles.count(), threads, thread);
                T* const memory = own + thread * share + sizes.raw_size;
                const panels m{memory, sizes.tiles, sizes.out_lines};
                const panels v{memory + sizes.products_size(sizes.tiles), sizes.tiles, sizes.in_lines};
                for (std::size_t first = all.first; first < all.last; first += sizes.tiles) {
                    const parallel::block block{first, std::min(all.last, first + sizes.tiles)};
                    transform_inputs(block, first, v, !sizes.in_order);
                    clear_rows({block.size(), round_up(block.size(), tile_rows)}, v);
                    const parallel::block next{block.last, std::min(all.last, block.last + sizes.tiles)};
                    multiply(block.size(), sizes.out_lines, v, u, m,
                             sizes.in_order ? ahead_of(block, next) : far_walk<T>{}, true);
                    transform_outputs(block, {0, sizes.out_lines}, m, !sizes.in_order);
                }
            });
            return;
        }
        const panels v{common, sizes.tiles, sizes.in_lines};
        for (std::size_t first = 0; first < tiles.count(); first += sizes.tiles) {
            const parallel::block block{first, std::min(tiles.count(), first + sizes.tiles)};
            parallel::on_each_thread(use.team, [&](std::size_t thread) {
                const parallel::block part = parallel::split(block.size(), threads, thread);
                transform_inputs({first + part.first, first + part.last}, first, v, true);
                if (thread == 0) clear_rows({block.size(), round_up(block.size(), tile_rows)}, v);
            });
            parallel::on_each_thread(use.team, [&](std::size_t thread) {
                const parallel::block all = parallel::split(sizes.all_lines, threads, thread);
                T* const raw = own + thread * share;
                const panels m{raw + sizes.raw_size, sizes.tiles, sizes.out_lines};
                const panels anew{m.data + sizes.products_size(sizes.tiles), s.depth, sizes.out_lines};
                for (std::size_t l = all.first; l < all.last; l += sizes.out_lines) {
                    const parallel::block lines{l, std::min(all.last, l + sizes.out_lines)};
                    if (!sizes.keeps) transform_filters(lines, anew, raw);
                    multiply(block.size(), lines.size(), v, sizes.keeps ? u.from(l) : anew, m, {}, false);
                    transform_outputs(block, lines, m, true);
                }
            });
        }
    }
};

/// The shortest line, in vectors: one of them if that is long enough for a turn of the walk through memory.
template <class T>
inline constexpr std::size_t short_line = simd::width<T> < cache_walk<T>::links ? tile_vectors : 1;

/// Lines of one vector are enough for the channels or for the filters: in longer ones half of the work would be for
/// zeros.
template <class T>
[[nodiscard]] constexpr bool takes_short_lines(const convolution& g) noexcept {
    return std::min(g.channels, g.filters) <= simd::width<T>;
}
/// f(vectors of a line); no bit depends on them.
template <class T, narrow Narrow, class F>
constexpr decltype(auto) with_line_vectors(const convolution& g, F&& f) noexcept {
    constexpr std::integral_constant<std::size_t, short_line<T>> shorter{};
    constexpr std::integral_constant<std::size_t, tile_vectors> longer{};
    if constexpr (Narrow == narrow::automatic)
        return takes_short_lines<T>(g) ? f(shorter) : f(longer);
    else if constexpr (Narrow == narrow::yes)
        return f(shorter);
    else
        return f(longer);
}

[[nodiscard]] constexpr sliding winograd_backward(const convolution& g) noexcept {
    return backward_sliding(g, {0, g.rows, 1, g.pad_top, 3}, {0, g.columns, 1, g.pad_left, 3});
}

}  // namespace detail

/// Elements of scratch of winograd_forward for at most `batch` samples.
template <std::size_t M, class T, narrow Narrow = narrow::automatic>
[[nodiscard]] constexpr std::size_t winograd_forward_scratch(const convolution& g, std::size_t batch,
                                                             parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    return detail::with_line_vectors<T, Narrow>(g, [&](auto vectors) {
        return detail::winograd_plan<T, M, vectors>{detail::forward_sliding(g), g.filters, batch, team}.scratch();
    });
}

///     w, 3 x 3              G w G^T   U: (M + 2)^2 matrices, channels x filters --+
///                                                                                 +-- V U -- A^T . A --> y, M x M
///     x, (M + 2) x (M + 2)  B^T x B   V: (M + 2)^2 matrices, tiles x channels   --+
/// The position of a tile in its image is fixed, so an output depends on its sample alone. Weights are transformed in
/// each call.
/// y = x * w + bias by F(M x M, 3 x 3), M = 2, 4 or 6; `bias` has `filters` entries or is null. For each tile of M x M
/// outputs: y = A^T (sum over channels of (G w G^T) . (B^T x B)) A, (M + 2)^2 multiplications for 9 M^2. The sum is one
/// chain of fused multiply-adds over ascending channels, the bias is added last. `Narrow`: whether lines of channels
/// are short; no bit depends on it. Padding and what hangs over at the lower and right edge are zeros. Cost: batch x
/// flops() divided by 2.25, 4 or 5.06 where tiles fit the image, and transforms of x, w, y. Error: with u = half an
/// epsilon, at most n u |A^T| (sum of (|G| |w| |G^T|) . (|B^T| |x| |B|)) |A|, n = channels + 3 M + 25. For random
/// operands the root mean square is that of a chain of `channels` links times 1.7 (M = 2), 4.8 (M = 4), 20.6 (M = 6).
/// Measured for 64 channels, relative to the outputs: 2.2, 6.7 and 29 epsilon, largest 12, 52 and 290; directly 3.5
/// and 35. A number that is not finite reaches all outputs of the tiles that read it. Papers: Winograd, Arithmetic
/// Complexity of Computations (1980); Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2016).
template <std::size_t M, class T, narrow Narrow = narrow::automatic>
void winograd_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                      resources<T> use) noexcept {
    if (detail::is_empty(g) || batch == 0) return;
    const detail::sliding s = detail::forward_sliding(g);
    detail::with_line_vectors<T, Narrow>(g, [&](auto vectors) {
        detail::winograd_correlation<T, M, vectors>{s,
                                                    g.filters,
                                                    {M, s, batch},
                                                    {x, g.rows, g.columns, g.channels},
                                                    w,
                                                    false,
                                                    {y, s.out_rows, s.out_columns, g.filters},
                                                    bias}
            .run(batch, use);
    });
}

/// Elements of scratch of winograd_backward_data for at most `batch` samples.
template <std::size_t M, class T, narrow Narrow = narrow::automatic>
[[nodiscard]] constexpr std::size_t winograd_backward_data_scratch(const convolution& g, std::size_t batch,
                                                                   parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    return detail::with_line_vectors<T, Narrow>(g, [&](auto vectors) {
        return detail::winograd_plan<T, M, vectors>{detail::winograd_backward(g), g.channels, batch, team}.scratch();
    });
}

/// dx = the gradient with respect to x, from dy: the forward pass over dy with the kernels turned round, same cost and
/// error with filters for channels.
template <std::size_t M, class T, narrow Narrow = narrow::automatic>
void winograd_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                            resources<T> use) noexcept {
    if (batch == 0) return;
    if (detail::is_empty(g)) {
        std::fill_n(dx, batch * g.in_size(), T{0});
        return;
    }
    const detail::sliding s = detail::winograd_backward(g);
    detail::with_line_vectors<T, Narrow>(g, [&](auto vectors) {
        detail::winograd_correlation<T, M, vectors>{s,
                                                    g.channels,
                                                    {M, s, batch},
                                                    {dy, g.out_rows(), g.out_columns(), g.filters},
                                                    w,
                                                    true,
                                                    {dx, g.rows, g.columns, g.channels},
                                                    nullptr}
            .run(batch, use);
    });
}

LOCKSTEP_TEMPLATE(winograd_forward<2, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_forward<2, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_forward<2, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_forward<4, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_forward<4, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_forward<4, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_forward<6, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_forward<6, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_forward<6, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_backward_data<2, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_backward_data<2, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_backward_data<2, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_backward_data<4, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_backward_data<4, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_backward_data<4, float, narrow::yes>);
LOCKSTEP_TEMPLATE(winograd_backward_data<6, float, narrow::automatic>);
LOCKSTEP_TEMPLATE(winograd_backward_data<6, float, narrow::no>);
LOCKSTEP_TEMPLATE(winograd_backward_data<6, float, narrow::yes>);

}  // namespace lockstep::kernels
