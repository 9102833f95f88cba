// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Convolutions of images with few channels: their numbers are sorted into lines, so that those which neighbouring
// outputs read in a link lie side by side and a register tile reads them from one address, where it would otherwise
// follow the window of each of its outputs.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/matrix_tile.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

/// Three numbers of each pixel to three lines; 3 `width` numbers of x are read.
template <class T>
LOCKSTEP_FLATTEN inline void part_three(const T* from, T* const (&to)[3]) noexcept {
    using vector = typename vector_of<T, simd::width<T>>::type;
    constexpr int width = static_cast<int>(simd::width<T>);
    vector in[3];
    unroll<3>([&](auto i) LOCKSTEP_FLATTEN { std::memcpy(&in[i], from + i * simd::width<T>, sizeof(vector)); });
    unroll<3>([&](auto c) LOCKSTEP_FLATTEN {
        [&]<int... I>(std::integer_sequence<int, I...>) LOCKSTEP_FLATTEN {
            constexpr int first = static_cast<int>(c());
            constexpr auto place = [](int i) { return 3 * i + first; };
            const vector most = __builtin_shufflevector(in[0], in[1], (place(I) < 2 * width ? place(I) : 0)...);
            const vector all = __builtin_shufflevector(most, in[2], (place(I) < 2 * width ? I : place(I) - width)...);
            std::memcpy(to[c], &all, sizeof(all));
        }
        (std::make_integer_sequence<int, width>{});
    });
}

///     row of x   r0 g0 b0 r1 g1 b1 r2 g2 b2 ..
///     lines      0 r0 r1 r2 .. | 0 g0 g1 g2 .. | 0 b0 b1 b2 ..       stride 1, one column of padding
/// A tile of outputs q, q + 1, .. reads link (kernel column k, channel c) at numbers q + k, q + k + 1, .. of line c.
/// Stride s: line c s + k mod s, from number q + k / s on.
/// A line is what the outputs of one row see in one channel at one kernel column: columns `stride` apart, with their
/// padding and zeros after. Lines of kernel columns that see the same columns are one. Chains are those of the register
/// tile.
template <class T>
struct few_channels {
    sliding s;

    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t most_channels = 4;
    static constexpr std::size_t most_links = panel_depth<T>;  ///< of which the first level holds the weights
    static constexpr std::size_t target = 1024;                ///< pixels of a block
    static constexpr std::size_t slack = 8;  ///< outputs that a tile computes after the end of a row, at most

    /// Whether it takes the convolution: whole vectors of filters, windows that overlap, rows of outputs that fill half
    /// a tile. Depends on the sizes alone.
    [[nodiscard]] static constexpr bool fit(const sliding& s, std::size_t n) noexcept {
        return simd::registers >= 32 && n % width == 0 && s.depth <= most_channels && s.pixel == s.depth &&
               s.links() > 0 && s.links() <= most_links && s.out_columns >= 8 && s.taps_rows * s.taps_columns > 1 &&
               reach(s.taps_rows, s.dilation_rows) >= s.stride_rows &&
               reach(s.taps_columns, s.dilation_columns) >= s.stride_columns;
    }

    /// Outputs that a tile takes of so many in a row, at most: registers hold their sums, and numbers to come.
    static constexpr std::size_t most(std::size_t vectors) noexcept { return vectors == 1 ? 2 * tile_rows : high_tile; }
    /// Calls f(outputs constant) with a size that covers `count` of them: rows are cut evenly.
    template <std::size_t Vectors, class F>
    static LOCKSTEP_FLATTEN void with_outputs(std::size_t count, const F& f) noexcept {
        constexpr std::size_t unit = most(Vectors), step = Vectors == 1 ? 4 : 1;
        if (count <= unit - 3 * step) return f(std::integral_constant<std::size_t, unit - 3 * step>{});
        if (count <= unit - 2 * step) return f(std::integral_constant<std::size_t, unit - 2 * step>{});
        if (count <= unit - step) return f(std::integral_constant<std::size_t, unit - step>{});
        f(std::integral_constant<std::size_t, unit>{});
    }

    [[nodiscard]] constexpr std::size_t pitch() const noexcept {
        return round_up(s.out_columns + slack + reach(s.taps_columns, s.dilation_columns) / s.stride_columns, width);
    }
    [[nodiscard]] constexpr std::size_t row_size() const noexcept { return s.depth * s.stride_columns * pitch(); }
    [[nodiscard]] static constexpr std::size_t copy_size(const sliding& s, std::size_t samples,
                                                         std::size_t high) noexcept {
        return whole_lines<T>(samples * s.seen_rows(high) * few_channels{s}.row_size() + width);
    }

    /// One row of an image; lines of one channel lie together, those that begin one column apart follow each other.
    /// Zeros are written in whole vectors, up to one after the last line, and numbers over them.
    void copy_row(const T* x, T* to) const noexcept {
        const auto step = static_cast<std::ptrdiff_t>(s.stride_columns), depth = static_cast<std::ptrdiff_t>(s.depth);
        const auto limit = static_cast<std::ptrdiff_t>(pitch()), room = static_cast<std::ptrdiff_t>(s.columns);
        constexpr auto by = static_cast<std::ptrdiff_t>(width);
        // f(line, numbers before the image, numbers before its end, column of the image that the line would begin with)
        const auto each = [&](const auto& f) LOCKSTEP_FLATTEN {
            T* line = to;
            for (std::ptrdiff_t channel = 0; channel < depth; ++channel)
                for (std::ptrdiff_t origin = s.origin_columns; origin < s.origin_columns + step;
                     ++origin, line += limit) {
                    const std::ptrdiff_t before = origin < 0 ? step - 1 - origin : 0,
                                         after = room > origin ? room - origin + step - 1 : 0;
                    f(line, std::min(step == 1 ? before : before / step, limit),
                      std::min(step == 1 ? after : after / step, limit), channel + origin * depth);
                }
        };
        simd::batch<T> zeros(T{0});
        simd::pin(zeros);  // else compilers call a function for a vector or two
        each([=](T* line, std::ptrdiff_t before, std::ptrdiff_t after, std::ptrdiff_t) LOCKSTEP_FLATTEN {
            for (std::ptrdiff_t i = 0; i < before; i += by) simd::store(line + i, zeros);
            for (std::ptrdiff_t i = after; i < limit; i += by) simd::store(line + i, zeros);
        });
        std::ptrdiff_t whole = 0;  // numbers sorted in vectors
        if (depth == 3 && step == 1 && s.origin_columns <= 0)
            for (T* first = to - s.origin_columns; whole + by <= std::min(room, limit + s.origin_columns); whole += by)
                part_three(x + 3 * whole, {first + whole, first + limit + whole, first + 2 * limit + whole});
        each([=](T* line, std::ptrdiff_t before, std::ptrdiff_t after, std::ptrdiff_t at) LOCKSTEP_FLATTEN {
            for (std::ptrdiff_t i = before + whole; i < after; ++i) line[i] = x[i * step * depth + at];
        });
    }

    void copy(const output_block& block, const T* x, T* to) const noexcept {
        const std::size_t high = s.seen_rows(block.rows.size()), size = row_size();
        for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample)
            for (std::size_t r = 0; r < high; ++r, to += size) {
                const std::ptrdiff_t row =
                    static_cast<std::ptrdiff_t>(block.rows.first * s.stride_rows + r) + s.origin_rows;
                if (row < 0 || row >= static_cast<std::ptrdiff_t>(s.rows))
                    std::fill_n(to, size, T{0});
                else
                    copy_row(x + (sample * s.rows + static_cast<std::size_t>(row)) * s.columns * s.depth, to);
            }
    }

    /// Where the number of each link lies, from that of the first one on.
    [[nodiscard]] std::array<std::uint32_t, most_links> places() const noexcept {
        std::array<std::uint32_t, most_links> out;
        std::size_t link = 0;
        for (std::size_t row = 0; row < s.taps_rows; ++row)
            for (std::size_t tap = 0; tap < s.taps_columns; ++tap)
                for (std::size_t channel = 0; channel < s.depth; ++channel) {
                    const std::size_t column = tap * s.dilation_columns;
                    out[link++] = static_cast<std::uint32_t>(
                        row * s.dilation_rows * row_size() +
                        (channel * s.stride_columns + column % s.stride_columns) * pitch() + column / s.stride_columns);
                }
        return out;
    }

    struct target_row {
        T* y;
        std::size_t step;
        std::size_t count;
        bool streamed;
    };

    /// Neighbouring outputs of a row: `Rows`, of which `to` takes some, times vectors of filters.
    template <std::size_t Rows, std::size_t Vectors>
    [[gnu::noinline]] static void run(const T* x, const std::uint32_t* place, std::size_t links, const T* w,
                                      const T* start, const target_row& to) noexcept {
        accumulators<T, Rows, Vectors> tile;
        using sums = accumulators<T, Rows, Vectors>;
        sums::each([&](std::size_t i, std::size_t v)
                       LOCKSTEP_FLATTEN { tile.sum[i][v] = simd::load(start + v * width); });
        if (!to.streamed)
            for (std::size_t i = 0; i < to.count; ++i)
                for (std::size_t v = 0; v < Vectors; ++v) __builtin_prefetch(to.y + i * to.step + v * width, 1, 3);
        const auto some = [&](auto together) LOCKSTEP_FLATTEN {
            unroll<together>([&](auto link) LOCKSTEP_FLATTEN {
                const T* at = x;
                advance(at, place[link]);
                tile.step_in_place(w + link * tile_columns<T>,
                                   [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return at[i]; });
            });
            place += together;
            w += together * tile_columns<T>;
        };
        constexpr std::size_t few = 4;
        for (; links >= few; links -= few) some(std::integral_constant<std::size_t, few>{});
        for (; links > 0; --links) some(std::integral_constant<std::size_t, 1>{});
        T* y = to.y;
        const std::size_t count = to.count, step = to.step;
        const auto each = [&](const auto& put) LOCKSTEP_FLATTEN {
            LOCKSTEP_UNROLL
            for (std::size_t i = 0; i < Rows; ++i) {
                if (i >= count) break;
                LOCKSTEP_UNROLL
                for (std::size_t v = 0; v < Vectors; ++v) put(y + v * width, tile.sum[i][v]);
                y += step;
            }
        };
        if (to.streamed)
            each([](T* at, const simd::batch<T>& value) LOCKSTEP_FLATTEN { simd::stream(at, value); });
        else
            each([](T* at, const simd::batch<T>& value) LOCKSTEP_FLATTEN { simd::store(at, value); });
    }

    /// All outputs of a block from its copy; `panels` are links x tile_columns.
    void block(const output_block& of, std::size_t n, const T* x, const T* panels, const T* bias, T* y,
               const output_pitch& out, bool streamed) const noexcept {
        const std::array<std::uint32_t, most_links> place = places();
        const std::size_t high = of.rows.size(), seen = s.seen_rows(high), links = s.links();
        for (std::size_t first = 0; first < n; first += tile_columns<T>) {
            alignas(simd::alignment) T start[tile_columns<T>]{};
            if (bias) std::copy_n(bias + first, std::min(tile_columns<T>, n - first), start);
            const auto tiles = [&](auto vectors) LOCKSTEP_FLATTEN {
                const std::size_t parts = (s.out_columns + most(vectors) - 1) / most(vectors);
                for (std::size_t sample = 0; sample < of.samples.size(); ++sample)
                    for (std::size_t row = 0; row < high; ++row) {
                        const T* from = x + (sample * seen + row * s.stride_rows) * row_size();
                        target_row to{y + sample * out.sample + row * out.row + first, out.column,
                                      s.out_columns / parts, streamed};
                        // The first tiles of a row are one larger where they do not come out even.
                        to.count += 1;
                        for (std::size_t part = 0; part < parts;
                             ++part, from += to.count, to.y += to.count * out.column) {
                            if (part == s.out_columns % parts) to.count -= 1;
                            with_outputs<vectors>(to.count, [&](auto rows) LOCKSTEP_FLATTEN {
                                run<rows, vectors>(from, place.data(), links, panels + first * links, start, to);
                            });
                        }
                    }
            };
            if (n - first > width)
                tiles(std::integral_constant<std::size_t, 2>{});
            else
                tiles(std::integral_constant<std::size_t, 1>{});
        }
    }
};

}  // namespace lockstep::kernels::detail
