// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Convolutions three columns wide of which one vector holds all filters: a number of x is broadcast once for the three
// kernel columns that use it, where a register tile one vector wide would load a number for every multiplication.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

/// Chains are those of the register tile: kernel rows, kernel columns and channels for an output, pixels for a weight.
template <class T>
struct three_columns {
    using batch = simd::batch<T>;
    static constexpr std::size_t taps = 3;  ///< kernel columns
    static constexpr std::size_t rows =
        8;  ///< of outputs, or channels of weights, that registers hold for the three of them
    static constexpr std::size_t width = simd::width<T>;

    /// Sums of `rows` chains for each kernel column, three vectors and a number take 28 registers.
    [[nodiscard]] static constexpr bool fits(const sliding& s, std::size_t n) noexcept {
        return simd::registers >= 32 && n == width && s.taps_columns == taps && s.stride_columns == 1 &&
               s.dilation_columns == 1 && s.depth >= rows && s.depth % rows == 0 && s.out_columns >= 8;
    }
    [[nodiscard]] static constexpr bool fits_rows(const sliding& s, std::size_t n) noexcept {
        return fits(s, n) && s.out_rows % rows == 0 && s.taps_rows > 0;
    }

    ///     pixel of x         q                   a number is broadcast once and meets three weights
    ///     kernel column   2  1  0
    ///     output      q - 2  q - 1  q            sum[2], sum[1], sum[0]
    /// After pixel q output q - 2 is complete and stored; the two others move on by one.
    /// One kernel row of `rows` rows of outputs. From `start`, or from what y holds if it is null. The window slides
    /// over each pixel of x: it is the first of the output that begins there, and the last of the one that ends. `w`
    /// are rows of tile_columns.
    [[gnu::noinline]] static void run(const sliding& s, const T* const* x, std::size_t pixel, const T* w,
                                      const T* start, T* const* y, std::size_t y_step) noexcept {
        batch sum[taps][rows];
        const T* from[rows];
        unroll<rows>([&](auto i) LOCKSTEP_FLATTEN {
            from[i] = x[i];
            sum[0][i] = sum[1][i] = sum[2][i] = batch(T{0});
        });
        const std::size_t apart = s.depth * tile_columns<T>, depth = s.depth, columns = s.out_columns;
        for (std::size_t q = 0; q < columns + taps - 1; ++q) {
            // Before the first output and after the last one sums are of no use, and stored nowhere.
            if (q < columns)
                unroll<rows>([&](auto i)
                                 LOCKSTEP_FLATTEN { sum[0][i] = simd::load(start ? start : y[i] + q * y_step); });
            const T* right = w;
            for (std::size_t c = 0, at = q * pixel; c < depth; ++c, ++at, right += tile_columns<T>) {
                const batch first = simd::load(right), second = simd::load(right + apart),
                            third = simd::load(right + 2 * apart);
                unroll<rows>([&](auto i) LOCKSTEP_FLATTEN {
                    batch left(from[i][at]);
                    simd::pin(left);
                    sum[0][i] = simd::fma(left, first, sum[0][i]);
                    sum[1][i] = simd::fma(left, second, sum[1][i]);
                    sum[2][i] = simd::fma(left, third, sum[2][i]);
                });
            }
            if (q + 1 >= taps)
                unroll<rows>([&](auto i) LOCKSTEP_FLATTEN { simd::store(y[i] + (q + 1 - taps) * y_step, sum[2][i]); });
            unroll<rows>([&](auto i) LOCKSTEP_FLATTEN {
                sum[2][i] = sum[1][i];
                sum[1][i] = sum[0][i];
            });
        }
    }

    /// All outputs of a block, from its window.
    static void block(const sliding& s, const output_block& of, const window<T>& source, const T* panels, const T* bias,
                      T* y, const output_pitch& pitch) noexcept {
        alignas(simd::alignment) T begin[width]{};
        if (bias) std::copy_n(bias, width, begin);
        const std::size_t high = of.rows.size(), all = of.samples.size() * high;
        for (std::size_t first = 0; first < all; first += rows)
            for (std::size_t tap = 0; tap < s.taps_rows; ++tap) {
                const T* from[rows];
                T* to[rows];
                for (std::size_t i = 0; i < rows; ++i) {
                    // Rows that are missing repeat the last one.
                    const std::size_t row = std::min(first + i, all - 1);
                    from[i] = source.data + row / high * source.sample_pitch +
                              (row % high * s.stride_rows + tap * s.dilation_rows) * source.row_pitch;
                    to[i] = y + row / high * pitch.sample + row % high * pitch.row;
                }
                run(s, from, source.pixel_pitch, panels + tap * s.row_links() * tile_columns<T>,
                    tap == 0 ? begin : nullptr, to, pitch.column);
            }
    }

    /// The kernel columns first to last of one pixel of x: their outputs lie one pixel apart, that of the first kernel
    /// column at `dy`.
    template <std::size_t First, std::size_t Last>
    static LOCKSTEP_FLATTEN void add_pixel(batch (&sum)[taps][rows], const T* x, const T* dy, std::size_t ld) noexcept {
        batch right[taps];
        unroll<Last - First>([&](auto k) LOCKSTEP_FLATTEN {
            right[First + k] = simd::load(dy - (First + k) * ld);
            simd::pin(right[First + k]);
        });
        unroll<rows>([&](auto i) LOCKSTEP_FLATTEN {
            batch left(x[i]);
            simd::pin(left);
            unroll<Last - First>([&](auto k) LOCKSTEP_FLATTEN {
                sum[First + k][i] = simd::fma(left, right[First + k], sum[First + k][i]);
            });
        });
    }

    /// Continues dw of `rows` channels in one kernel row over some rows of one sample, or starts it from zero.
    [[gnu::noinline]] static void add_outer(const sliding& s, std::size_t high, const T* x, std::size_t x_row,
                                            std::size_t pixel, const T* dy, std::size_t ld, T* dw,
                                            bool starts) noexcept {
        batch sum[taps][rows];
        const auto each = [&](const auto& f) LOCKSTEP_FLATTEN {
            unroll<taps>([&](auto k) LOCKSTEP_FLATTEN {
                unroll<rows>([&](auto i) LOCKSTEP_FLATTEN { f(sum[k][i], dw + (k * s.depth + i) * ld); });
            });
        };
        each([&](batch& to, const T* from) LOCKSTEP_FLATTEN { to = starts ? batch(T{0}) : simd::load(from); });
        const std::size_t columns = s.out_columns;
        for (std::size_t row = 0; row < high; ++row, x += x_row, dy += columns * ld) {
            const T* from = x;
            const T* to = dy;
            const auto advance = [&]() LOCKSTEP_FLATTEN {
                from += pixel;
                to += ld;
            };
            add_pixel<0, 1>(sum, from, to, ld);
            advance();
            add_pixel<0, 2>(sum, from, to, ld);
            advance();
            for (std::size_t q = taps - 1; q < columns; ++q, advance()) add_pixel<0, 3>(sum, from, to, ld);
            add_pixel<1, 3>(sum, from, to, ld);
            advance();
            add_pixel<2, 3>(sum, from, to, ld);
        }
        each([&](const batch& from, T* to) LOCKSTEP_FLATTEN { simd::store(to, from); });
    }
};

}  // namespace lockstep::kernels::detail
