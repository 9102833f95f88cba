// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The register tile of a weight gradient whose kernel rows have few links: the links of a kernel row, or of all kernel
// rows, are reached from one address each.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/matrix_tile.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels::detail {

///     row of x      x0 x1 x2 x3 ..                 output q sees link l of a kernel row at x[q stride channels + l]
///     output q      [ l0 l1 .. l8 ]                3 columns x 3 channels: one address and constants
/// Some rows of outputs of one sample, and the weights that they are added to: chains over pixels in ascending order.
template <class T>
struct link_tile {
    const T* x = nullptr;  ///< first link of the first output
    std::size_t x_run = 0;
    std::size_t x_step = 0;
    std::size_t x_row = 0;
    const T* dy = nullptr;
    std::size_t dy_step = 0;
    std::size_t rows = 0;
    std::size_t columns = 0;
    T* dw = nullptr;
    std::size_t dw_run = 0;
    std::size_t ld = 0;
    T* dbias = nullptr;                 ///< sums of dy
    std::size_t wide = simd::width<T>;  ///< filters of the last vector

    static constexpr std::size_t width = simd::width<T>;

    /// Continues the sums of Runs x Links links and of Vectors vectors of filters; those of dy, too, where `WithBias`.
    template <std::size_t Runs, std::size_t Links, std::size_t Vectors, bool WithBias = false>
    [[gnu::noinline]] void run() const noexcept {
        using batch = simd::batch<T>;
        const std::size_t last = wide;
        const auto load = [last](const T* from, std::size_t v) LOCKSTEP_FLATTEN {
            return v + 1 < Vectors ? simd::load(from + v * width) : simd::load_first(from + v * width, last);
        };
        const auto place = [&](std::size_t i) LOCKSTEP_FLATTEN { return dw + i / Links * dw_run + i % Links * ld; };
        accumulators<T, Runs * Links, Vectors> tile;
        tile.each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN { tile.sum[i][v] = load(place(i), v); });
        batch bias(T{0});
        if constexpr (WithBias) bias = load(dbias, 0);
        const std::size_t step = x_step, y_step = dy_step;
        const T* right = dy;
        for (std::size_t row = 0; row < rows; ++row) {
            const T* at[Runs];
            unroll<Runs>([&](auto r) LOCKSTEP_FLATTEN { at[r] = x + row * x_row + r * x_run; });
            for (std::size_t left = columns; left > 0; --left) {
                batch first = load(right, 0);
                simd::pin(first);
                if constexpr (WithBias) bias = bias + first;
                tile.step_pinned([&](std::size_t v) LOCKSTEP_FLATTEN { return v == 0 ? first : load(right, v); },
                                 [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return at[i / Links][i % Links]; });
                unroll<Runs>([&](auto r) LOCKSTEP_FLATTEN { advance(at[r], step); });
                right += y_step;
            }
        }
        tile.each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN {
            if (v + 1 < Vectors)
                simd::store(place(i) + v * width, tile.sum[i][v]);
            else
                simd::store_first(place(i) + v * width, tile.sum[i][v], last);
        });
        if constexpr (WithBias) simd::store_first(dbias, bias, last);
    }

    /// All links of few at once, one vector of filters: kernels of three rows of nine links, and of five of five.
    [[nodiscard]] static constexpr bool holds_kernel(const sliding& s, std::size_t n) noexcept {
        return simd::registers >= 32 && n <= width && s.pixel == s.depth && s.dilation_columns == 1 &&
               ((s.taps_rows == 3 && s.row_links() == 9) || (s.taps_rows == 5 && s.row_links() == 5));
    }
    void add_kernel(std::size_t links) const noexcept {
        if (links == 9)
            dbias ? run<3, 9, 1, true>() : run<3, 9, 1>();
        else
            dbias ? run<5, 5, 1, true>() : run<5, 5, 1>();
    }

    /// The same for filters that fill no more than half of a vector: a vector of dy holds those of two neighbouring
    /// outputs, so that a number of x adds to two neighbouring kernel columns. Columns are taken in pairs, the last one
    /// alone if they are odd. A number of x that is not finite reaches other positions of its kernel row, too: at the
    /// ends of a row of dy it is multiplied with zeros.
    [[nodiscard]] static constexpr bool pairs_columns(const sliding& s, std::size_t n) noexcept {
        return holds_kernel(s, n) && 2 * n <= width && s.stride_columns == 1 && s.out_columns >= 8 &&
               (s.taps_columns == 5 || (s.taps_columns == 3 && s.depth == 3));
    }
    static constexpr std::size_t most_sums =
        2 * tile_rows * width;  ///< numbers that `sums` of add_pairs holds, at most
    /// `sums` are those of pair_offset(), and after them those of dy; `line` holds a row of dy and a vector on both
    /// sides.
    template <std::size_t Runs, std::size_t Taps, std::size_t Depth>
    [[gnu::noinline]] void run_pairs(T* sums, T* line) const noexcept {
        using batch = simd::batch<T>;
        constexpr std::size_t pairs = (Taps + 1) / 2;
        accumulators<T, Runs * pairs * Depth, 1> tile;
        tile.template load_tile<width>(sums);
        batch bias = simd::load(sums + Runs * pairs * Depth * width);
        const std::size_t n = wide, count = columns * n;
        simd::store(line, batch(T{0}));
        for (std::size_t row = 0; row < rows; ++row) {
            const T* const from = dy + row * count;
            std::size_t done = 0;
            for (; done + width <= count; done += width) simd::store(line + n + done, simd::load(from + done));
            simd::store(line + n + done, simd::load_first(from + done, count - done));
            simd::store(line + n + count, batch(T{0}));
            const T* at[Runs];
            unroll<Runs>([&](auto r) LOCKSTEP_FLATTEN { at[r] = x + row * x_row + r * x_run; });
            const T* right = line;
            // From the output before the first one, of which there is nothing but its neighbour.
            for (std::size_t left = columns + 1; left > 0; --left) {
                batch two = simd::load(right);
                simd::pin(two);
                bias = bias + two;
                tile.step_pinned([&](std::size_t) LOCKSTEP_FLATTEN { return two; },
                                 [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& {
                                     const std::size_t pair = i / Depth % pairs, tap = std::min(2 * pair + 1, Taps - 1);
                                     return at[i / (pairs * Depth)][(tap - 1) * Depth + i % Depth];
                                 });
                unroll<Runs>([&](auto r) LOCKSTEP_FLATTEN { advance(at[r], Depth); });
                right += n;
            }
        }
        tile.template store_tile<width>(sums);
        simd::store(sums + Runs * pairs * Depth * width, bias);
    }
    void add_pairs(std::size_t taps, T* sums, T* line) const noexcept {
        if (taps == 3)
            run_pairs<3, 3, 3>(sums, line);
        else
            run_pairs<5, 5, 1>(sums, line);
    }
    /// Where the sum of a link of a kernel row begins, of `run` rows before it.
    [[nodiscard]] static constexpr std::size_t pair_offset(const sliding& s, std::size_t n, std::size_t link) noexcept {
        const std::size_t run = link / s.row_links(), tap = link / s.depth % s.taps_columns, last = s.taps_columns - 1;
        const std::size_t sum = (run * (s.taps_columns / 2 + 1) + tap / 2) * s.depth + link % s.depth;
        return sum * width + (tap % 2 == 0 && tap < last ? n : 0);
    }

    /// Links of one kernel row that a tile of two vectors takes: fewer than registers would hold, because numbers to
    /// come need some. Calls f(links constant), or other() if there are fewer still.
    template <class F, class Other>
    static void with_links(std::size_t count, const F& f, const Other& other) noexcept {
        constexpr std::size_t fewest = high_tile / 2 + 1;
        if (count < fewest || count > high_tile) return other();
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (void)((count == fewest + I ? (f(std::integral_constant<std::size_t, fewest + I>{}), true) : false) || ...);
        }
        (std::make_index_sequence<high_tile - fewest + 1>{});
    }
};

}  // namespace lockstep::kernels::detail
