// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data gradient of stride 2: the four phases of a pixel of dy and its neighbours go through one register tile, so
// that a number of dy is read once for all of them.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <array>
#include <cstddef>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/phases.hpp"
#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

///     dy   (r, c)      (r, c + 1)            window of a position for a kernel of 3 x 3 with padding 1
///          (r + 1, c)  (r + 1, c + 1)        each number is loaded once for
///     dx   (2r, 2c)      (2r, 2c + 1)        four sums, one for each phase (a, b), which see
///          (2r + 1, 2c)  (2r + 1, 2c + 1)    1, 2, 2 and 4 of the outputs
/// Position (r, c) stands for the inputs (2 r + a, 2 c + b), a and b being 0 or 1. They see the outputs of one window,
/// some of them each. Chains are those of the phases one by one: output rows, output columns and filters in ascending
/// order.
template <class T>
struct stride_two {
    using batch = simd::batch<T>;
    convolution g;
    std::array<phase, 2> down{phase{0, g.rows, 2, g.pad_top, g.kernel_rows},
                              phase{1, g.rows, 2, g.pad_top, g.kernel_rows}};
    std::array<phase, 2> across{phase{0, g.columns, 2, g.pad_left, g.kernel_columns},
                                phase{1, g.columns, 2, g.pad_left, g.kernel_columns}};

    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t positions =
        6;  ///< whose four sums registers hold, beside four weights and numbers to come
    static constexpr std::size_t target = 256;  ///< positions of a block

    /// Whether it takes the convolution: whole vectors of channels, weights of one vector that stay near. Depends on
    /// the sizes alone.
    [[nodiscard]] static constexpr bool fits(const convolution& g) noexcept {
        return simd::registers >= 32 && g.stride_rows == 2 && g.stride_columns == 2 && g.groups == 1 &&
               !g.is_dilated() && g.rows > 1 && g.columns > 1 && g.channels % width == 0 &&
               std::min(g.kernel_rows, g.kernel_columns) > 1 &&
               g.kernel_rows * g.kernel_columns * g.filters * width * sizeof(T) <= std::size_t{64} << 10;
    }

    /// What all positions see.
    [[nodiscard]] constexpr sliding window_of() const noexcept {
        const auto first = [](const std::array<phase, 2>& of) { return std::min(of[0].origin, of[1].origin); };
        const auto seen = [&](const std::array<phase, 2>& of) {
            const auto last = [](const phase& p) { return p.origin + static_cast<std::ptrdiff_t>(p.taps); };
            return static_cast<std::size_t>(std::max(last(of[0]), last(of[1])) - first(of));
        };
        return {
            g.out_rows(), g.out_columns(), g.filters, down[0].count, across[0].count, seen(down), seen(across), 1, 1,
            first(down),  first(across)};
    }
    /// Kernel position at which a phase reaches position `at` of the window, or none.
    struct kernel_tap {
        bool is = false;
        std::size_t tap = 0;
    };
    [[nodiscard]] static constexpr kernel_tap tap_at(const phase& p, std::ptrdiff_t origin, std::size_t at) noexcept {
        const std::ptrdiff_t t = origin + static_cast<std::ptrdiff_t>(at) - p.origin;
        if (t < 0 || t >= static_cast<std::ptrdiff_t>(p.taps)) return {};
        return {true, p.offset + (p.taps - 1 - static_cast<std::size_t>(t)) * p.step};
    }
    [[nodiscard]] constexpr std::size_t weights() const noexcept { return whole_lines<T>(g.weight_count()); }
    [[nodiscard]] constexpr output_blocks blocks(std::size_t batch_size, std::size_t threads) const noexcept {
        return {batch_size, window_of(), target, threads};
    }
    [[nodiscard]] constexpr std::size_t share(std::size_t batch_size, std::size_t threads) const noexcept {
        const output_blocks all = blocks(batch_size, threads);
        return window<T>::copy_size(window_of(), all.samples, all.highest());
    }
    [[nodiscard]] constexpr std::size_t scratch(std::size_t batch_size, std::size_t threads) const noexcept {
        return weights() + threads * share(batch_size, threads);
    }

    /// Weights in the order in which a tile takes them: vectors of channels, positions of the window, filters, phases.
    void pack_weights(const T* w, T* to) const noexcept {
        const sliding s = window_of();
        for (std::size_t channel = 0; channel < g.channels; channel += width)
            for (std::size_t i = 0; i < s.taps_rows; ++i)
                for (std::size_t j = 0; j < s.taps_columns; ++j) {
                    std::array<const T*, 4> from{};
                    std::size_t count = 0;
                    for (const phase& p : down)
                        for (const phase& q : across) {
                            const kernel_tap row = tap_at(p, s.origin_rows, i), column = tap_at(q, s.origin_columns, j);
                            if (row.is && column.is)
                                from[count++] =
                                    w + ((row.tap * g.kernel_columns + column.tap) * g.channels + channel) * g.filters;
                        }
                    for (std::size_t k = 0; k < count; ++k) {
                        T* const first = to + k * width;
                        std::size_t filter = 0;
                        for (; filter + width <= g.filters; filter += width)
                            transpose_square(from[k] + filter, g.filters, first + filter * count * width,
                                             count * width);
                        for (; filter < g.filters; ++filter)
                            for (std::size_t c = 0; c < width; ++c)
                                first[filter * count * width + c] = from[k][c * g.filters + filter];
                    }
                    to += count * g.filters * width;
                }
    }

    /// What the window's positions along one dimension are to the phases: bit a where phase a reaches it.
    [[nodiscard]] static constexpr unsigned phases_at(const std::array<phase, 2>& of, std::ptrdiff_t origin,
                                                      std::size_t at) noexcept {
        return (tap_at(of[0], origin, at).is ? 1U : 0U) + (tap_at(of[1], origin, at).is ? 2U : 0U);
    }
    template <class F>
    static LOCKSTEP_FLATTEN void with_phases(unsigned which, const F& f) noexcept {
        if (which == 3) f(std::integral_constant<unsigned, 3>{});
        if (which == 2) f(std::integral_constant<unsigned, 2>{});
        if (which == 1) f(std::integral_constant<unsigned, 1>{});
    }

    /// One link of the phases Rows x Columns of all positions.
    template <unsigned Rows, unsigned Columns>
    static LOCKSTEP_FLATTEN void add(batch (&sum)[2][2][positions], const T* const (&x)[positions], std::size_t at,
                                     const T* w) noexcept {
        constexpr std::size_t first_row = Rows == 2, rows = Rows == 3 ? 2 : 1, first_column = Columns == 2,
                              columns = Columns == 3 ? 2 : 1;
        batch right[rows][columns];
        unroll<rows * columns>([&](auto k) LOCKSTEP_FLATTEN {
            right[k / columns][k % columns] = simd::load(w + k * width);
            simd::pin(right[k / columns][k % columns]);
        });
        unroll<positions>([&](auto i) LOCKSTEP_FLATTEN {
            batch left(x[i][at]);
            simd::pin(left);
            unroll<rows * columns>([&](auto k) LOCKSTEP_FLATTEN {
                simd::add_product(sum[first_row + k / columns][first_column + k % columns][i], left,
                                  right[k / columns][k % columns]);
            });
        });
    }

    /// The inputs of one position: those beyond the last row or column are not there.
    struct place {
        T* dx = nullptr;
        bool second_row = false;
        bool second_column = false;
    };

    /// All sums of a few positions and one vector of channels.
    [[gnu::noinline]] void run(const sliding& s, const window<T>& source, const T* const* from, const T* w,
                               const place* to, std::size_t count) const noexcept {
        batch sum[2][2][positions];
        const T* x[positions];
        unroll<positions>([&](auto i) LOCKSTEP_FLATTEN {
            x[i] = from[i];
            sum[0][0][i] = sum[0][1][i] = sum[1][0][i] = sum[1][1][i] = batch(T{0});
        });
        const std::size_t depth = g.filters;
        for (std::size_t i = 0; i < s.taps_rows; ++i)
            for (std::size_t j = 0; j < s.taps_columns; ++j) {
                const std::size_t first = i * source.row_pitch + j * source.pixel_pitch;
                with_phases(phases_at(down, s.origin_rows, i), [&](auto rows) LOCKSTEP_FLATTEN {
                    with_phases(phases_at(across, s.origin_columns, j), [&](auto columns) LOCKSTEP_FLATTEN {
                        constexpr std::size_t vectors = (rows == 3 ? 2 : 1) * (columns == 3 ? 2 : 1);
                        std::size_t at = first;
                        const auto links = [&](auto together) LOCKSTEP_FLATTEN {
                            unroll<together>([&](auto link) LOCKSTEP_FLATTEN {
                                add<rows, columns>(sum, x, at + link, w + link * vectors * width);
                            });
                            at += together;
                            w += together * vectors * width;
                        };
                        constexpr std::size_t few = 4;
                        while (at + few <= first + depth) links(std::integral_constant<std::size_t, few>{});
                        while (at < first + depth) links(std::integral_constant<std::size_t, 1>{});
                    });
                });
            }
        const std::size_t row = g.columns * g.channels, column = g.channels;
        unroll<positions>([&](auto i) LOCKSTEP_FLATTEN {
            if (i >= count) return;
            T* const dx = to[i].dx;
            simd::store(dx, sum[0][0][i]);
            if (to[i].second_column) simd::store(dx + column, sum[0][1][i]);
            if (to[i].second_row) simd::store(dx + row, sum[1][0][i]);
            if (to[i].second_row && to[i].second_column) simd::store(dx + row + column, sum[1][1][i]);
        });
    }

    void block_of(const output_block& block, const T* dy, const T* packed, T* dx, T* copy) const noexcept {
        const sliding s = window_of();
        const window<T> source{s, block, dy, copy};
        const std::size_t high = block.rows.size(), all = block.pixels(s.out_columns);
        const T* x[positions];
        place to[positions];
        for (std::size_t channel = 0; channel < g.channels;
             channel += width, packed += g.kernel_rows * g.kernel_columns * g.filters * width) {
            std::size_t sample = 0, row = 0, column = 0;
            for (std::size_t first = 0; first < all; first += positions) {
                const std::size_t count = std::min(positions, all - first);
                for (std::size_t i = 0; i < count; ++i) {
                    const std::size_t at = block.rows.first + row;
                    x[i] = source.data + sample * source.sample_pitch + row * source.row_pitch +
                           column * source.pixel_pitch;
                    to[i] = {dx + (block.samples.first + sample) * g.in_size() +
                                 (2 * at * g.columns + 2 * column) * g.channels + channel,
                             at < down[1].count, column < across[1].count};
                    if (++column < s.out_columns) continue;
                    column = 0;
                    if (++row < high) continue;
                    row = 0;
                    ++sample;
                }
                // Positions that are missing repeat the last one.
                for (std::size_t i = count; i < positions; ++i) x[i] = x[count - 1];
                run(s, source, x, packed, to, count);
            }
        }
    }
};

/// dx, as convolution_backward_data has it. Threads split the positions.
template <class T>
void stride_two_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                              resources<T> use) noexcept {
    const stride_two<T> all{g};
    const auto threads = static_cast<std::size_t>(use.team.threads);
    const output_blocks blocks = all.blocks(batch, threads);
    const std::size_t share = all.share(batch, threads);
    T* const packed = use.scratch.data();
    all.pack_weights(w, packed);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(blocks.count(), threads, thread);
        for (std::size_t index = mine.first; index < mine.last; ++index)
            all.block_of(blocks[index], dy, packed, dx, packed + all.weights() + thread * share);
    });
}

}  // namespace lockstep::kernels::detail
