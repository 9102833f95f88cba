// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Winograd convolution in blocks of tiles: transformed operands as panels of lines, the products of panels, and the way
// from and to images.
// Tested by tests/unit/kernels/convolution/winograd/winograd.cpp.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/convolution/winograd/winograd_transform.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels::detail {

[[nodiscard]] constexpr std::size_t quotient_up(std::size_t n, std::size_t unit) noexcept {
    return (n + unit - 1) / unit;
}

template <class T, std::size_t Vectors>
[[nodiscard]] constexpr std::size_t line_count(std::size_t channels) noexcept {
    return quotient_up(channels, line_size<T, Vectors>);
}

/// Rows of a tile of products: those of one line of channels where that is one vector.
template <class T, std::size_t Vectors>
inline constexpr std::size_t line_tile_rows = Vectors == 1 ? simd::width<T> : tile_rows;

/// Several matrices of `rows` x channels, one for each product: matrix after matrix, panel of line_size channels after
/// panel, row after row.
template <class T, std::size_t Vectors>
struct line_panels {
    static constexpr std::size_t line_size = detail::line_size<T, Vectors>;
    T* data = nullptr;
    std::size_t rows = 0;
    std::size_t panels = 0;

    /// An odd number of lines from one matrix to the next: the same line of all of them lies in different sets of a
    /// cache.
    [[nodiscard]] static constexpr std::size_t matrix_stride(std::size_t rows, std::size_t panels) noexcept {
        return (rows * panels | 1) * line_size;
    }
    [[nodiscard]] static constexpr std::size_t size(std::size_t matrices, std::size_t rows,
                                                    std::size_t panels) noexcept {
        return matrices * matrix_stride(rows, panels);
    }
    [[nodiscard]] std::size_t stride() const noexcept { return matrix_stride(rows, panels); }
    [[nodiscard]] T* line(std::size_t matrix, std::size_t panel, std::size_t row) const noexcept {
        return data + matrix * stride() + (panel * rows + row) * line_size;
    }
    /// The panels from `panel` on.
    [[nodiscard]] line_panels from(std::size_t panel) const noexcept { return {line(0, panel, 0), rows, panels}; }
    /// Of the square of `edge` x `edge` products.
    [[nodiscard]] line_pitch pitch(std::size_t edge) const noexcept { return {edge * stride(), stride()}; }
};

/// Calls f(first row, height constant) for tiles that cover all rows. A few rows more than half a tile are two low
/// ones, where a quarter of the accumulators are enough to keep the multipliers busy.
template <std::size_t Rows, std::size_t Vectors, class F>
inline void for_tiles(parallel::block rows, F&& f) noexcept {
    constexpr std::size_t half = (Rows + 1) / 2;
    constexpr std::size_t quarter = (half + 1) / 2;
    constexpr bool splits = quarter * Vectors >= 8;
    for (std::size_t row = rows.first; row < rows.last;) {
        const std::size_t left = rows.last - row;
        std::size_t high = std::min(Rows, left);
        if (splits && left > half && left <= half + quarter) high = quarter;
        with_height<Rows>(high, [&](auto height) { f(row, height); });
        row += high;
    }
}

/// Two stretches of memory that are wanted after the products: asked for into the second-level cache in their order, a
/// few lines at a time beside them.
template <class T>
struct far_walk {
    static constexpr std::size_t line = simd::alignment / sizeof(T);

    struct stretch {
        const T* at = nullptr;
        std::size_t left = 0;  ///< lines

        /// One of `parts` shares that follow each other.
        [[nodiscard]] stretch share(std::size_t number, std::size_t parts) const noexcept {
            const parallel::block lines = parallel::split(left, parts, number);
            return {at + lines.first * line, lines.size()};
        }
    };
    /// Some panels of a matrix.
    template <std::size_t Vectors>
    [[nodiscard]] static stretch panels_of(const line_panels<T, Vectors>& of, std::size_t matrix,
                                           parallel::block panels) noexcept {
        return {of.line(matrix, panels.first, 0), panels.size() * of.rows * of.line_size / line};
    }

    stretch now, next;
    std::size_t burst = 0;

    far_walk() = default;
    far_walk(stretch first, stretch second, std::size_t turns) noexcept
        : now{first}, next{second}, burst{quotient_up(first.left + second.left, std::max<std::size_t>(1, turns))} {}

    LOCKSTEP_FLATTEN void take_turn() noexcept {
        const std::size_t count = std::min(burst, now.left);
#pragma GCC unroll 1
        for (std::size_t i = count; i > 0; --i, now.at += line) __builtin_prefetch(now.at, 0, 2);
        now.left -= count;
        if (now.left > 0) return;
        now = next;
        next.left = 0;
    }
};

/// Lines of the cache that will be read soon: asked for a few at a time, beside the products.
template <class T>
struct cache_walk {
    static constexpr std::size_t line = simd::alignment / sizeof(T);
    static constexpr std::size_t links = 4;  ///< from one turn to the next

    const T* at = nullptr;
    std::size_t left = 0;
    std::size_t burst = 0;
    far_walk<T>* far = nullptr;  ///< null: nothing else

    /// `count` elements from `from` on, while `tiles` chains of so many links are computed.
    cache_walk(const T* from, std::size_t count, std::size_t tiles, std::size_t chain,
               far_walk<T>* beside = nullptr) noexcept
        : at{from},
          left{count / line},
          burst{quotient_up(left, std::max<std::size_t>(1, chain / links * tiles))},
          far{beside} {}

    LOCKSTEP_FLATTEN void take_turn() noexcept {
        const std::size_t now = std::min(burst, left);
        left -= now;
#pragma GCC unroll 1
        for (std::size_t i = now; i > 0; --i, at += line) __builtin_prefetch(at, 0, 2);
        if (far != nullptr) far->take_turn();
    }
    /// The tile of C that comes next.
    template <std::size_t Size>
    static void fetch_tile(const T* c) noexcept {
        for (std::size_t i = 0; i < Size; i += line) __builtin_prefetch(c + i, 1);
    }
};

/// Rows of one tile of C from panels: c (Rows lines) = or += a b, with a in Rows neighbouring lines of several panels,
/// `count` links in all. Each element is one chain over ascending links. The rows of A and of C after these are asked
/// for in advance.
template <std::size_t Rows, std::size_t Vectors, class T>
void multiply_lines(std::size_t count, const T* a, std::size_t a_panel, const T* b, T* c, bool starts,
                    cache_walk<T>& ahead) noexcept {
    using walk = cache_walk<T>;
    constexpr std::size_t line = line_size<T, Vectors>;
    constexpr std::size_t fetches = quotient_up(quotient_up(Rows * line, walk::line), line / walk::links);
    accumulators<T, Rows, Vectors> tile;
    if (starts)
        tile.clear();
    else
        tile.template load_tile<line>(c);
    for (; count >= line; count -= line, a += a_panel) {
        if (count < 2 * line) walk::template fetch_tile<Rows * line>(c + Rows * line);
        const T* next = a + Rows * line;
        for (std::size_t q = 0; q < line; next += fetches * walk::line) {
            ahead.take_turn();
            unroll<fetches>([&](auto i) LOCKSTEP_FLATTEN { __builtin_prefetch(next + i * walk::line); });
#pragma GCC unroll 1
            for (const std::size_t end = q + walk::links; q < end; ++q, b += line)
                tile.step(b, [&](auto i) LOCKSTEP_FLATTEN { return a[i * line + q]; });
        }
    }
    for (std::size_t q = 0; q < count; ++q, b += line)
        tile.step(b, [&](auto i) LOCKSTEP_FLATTEN { return a[i * line + q]; });
    tile.template store_tile<line>(c);
}

/// The same for c += a^T b: row i of C takes one element of each of `count` lines of A, and they lie at a[i / 2] + i %
/// 2, line_size apart, with one vector at a[0] + i; those of the last row of the next tile lie at `next`.
template <std::size_t Rows, std::size_t Vectors, class T>
void multiply_lines_transposed(std::size_t count, const T* const* a, const T* next, const T* b, T* c, bool starts,
                               cache_walk<T>& ahead) noexcept {
    using walk = cache_walk<T>;
    constexpr std::size_t line = line_size<T, Vectors>;
    constexpr std::size_t pairs = Vectors == 1 ? 1 : (Rows + 1) / 2;
    accumulators<T, Rows, Vectors> tile;
    if (starts)
        tile.clear();
    else
        tile.template load_tile<line>(c);
    // A pointer for each row would be more than there are registers.
    const T* pair[pairs];
    unroll<pairs>([&](auto i) LOCKSTEP_FLATTEN { pair[i] = a[i]; });
    std::size_t at = 0;
    const auto link = [&]() LOCKSTEP_FLATTEN {
        tile.step(b, [&](auto i) LOCKSTEP_FLATTEN { return Vectors == 1 ? pair[0][at + i] : pair[i / 2][at + i % 2]; });
        at += line;
        b += line;
    };
    for (const std::size_t end = count % walk::links + std::min(line, count) / walk::links * walk::links;
         count >= walk::links; count -= walk::links) {
        if (count == end) walk::template fetch_tile<Rows * line>(c + Rows * line);
        ahead.take_turn();
        if constexpr (Vectors == 1) {
            // Addresses of a register and a constant.
            const T* const row = pair[0] + at;
            unroll<walk::links>([&](auto q) LOCKSTEP_FLATTEN {
                __builtin_prefetch(next + at + q * line);
                tile.step_in_place(b + q * line,
                                   [&](auto i) LOCKSTEP_FLATTEN -> const T& { return row[q * line + i]; });
            });
            at += walk::links * line;
            b += walk::links * line;
        } else {
#pragma GCC unroll 1
            for (std::size_t q = 0; q < walk::links; ++q) {
                __builtin_prefetch(next + at);
                link();
            }
        }
    }
    for (; count > 0; --count) link();
    tile.template store_tile<line>(c);
}

/// Tiles of M x M outputs over a batch of images, numbered by sample, row and column. They hang over at the lower and
/// the right edge.
struct tiling {
    std::size_t edge = 1;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t batch = 0;

    constexpr tiling(std::size_t m, const sliding& s, std::size_t samples) noexcept
        : edge{m}, rows{quotient_up(s.out_rows, m)}, columns{quotient_up(s.out_columns, m)}, batch{samples} {}

    [[nodiscard]] constexpr std::size_t count() const noexcept { return batch * rows * columns; }

    struct position {
        std::size_t sample, row, column;  ///< of the tile's first output
    };
    [[nodiscard]] constexpr position operator[](std::size_t tile) const noexcept {
        return {tile / columns / rows, tile / columns % rows * edge, tile % columns * edge};
    }
    /// f(tile, position) for each tile of a block, without a division for each.
    template <class F>
    void for_each(parallel::block block, F&& f) const noexcept {
        position at = (*this)[block.first];
        for (std::size_t tile = block.first; tile < block.last; ++tile) {
            f(tile, at);
            if ((at.column += edge) < columns * edge) continue;
            at.column = 0;
            if ((at.row += edge) < rows * edge) continue;
            at.row = 0;
            ++at.sample;
        }
    }
};

/// Batch x rows x columns x depth, seen through windows that may reach out of an image.
template <class T, std::size_t Vectors>
struct image_windows {
    using element = std::remove_const_t<T>;
    using panels = line_panels<element, Vectors>;
    static constexpr std::size_t line = line_size<element, Vectors>;

    T* data = nullptr;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t depth = 0;

    [[nodiscard]] line_pitch pitch() const noexcept { return {columns * depth, depth}; }

    /// Cuts memory into parts in its order, one for each tile and as large as what it has of the image: where that of a
    /// tile begins, `ahead` image rows on.
    [[nodiscard]] T* share_of(const tiling& tiles, std::size_t tile, std::size_t ahead) const noexcept {
        const tiling::position at = tiles[std::min(tile, tiles.count())];
        const std::size_t row = std::min(at.row, rows);
        const std::size_t pixels = (at.sample * rows + row + ahead) * columns +
                                   std::min(at.column, columns) * std::min(tiles.edge, rows - row);
        return data + std::min(pixels, tiles.batch * rows * columns) * depth;
    }
    /// The parts of a block of tiles. With `ahead` rows, all that the block sees of `ahead` rows lies in them and in
    /// those of the blocks before.
    [[nodiscard]] typename far_walk<element>::stretch shares_of(const tiling& tiles, parallel::block of,
                                                                std::size_t ahead) const noexcept {
        const element* const from = share_of(tiles, of.first, ahead);
        return {from, static_cast<std::size_t>(share_of(tiles, of.last, ahead) - from) / far_walk<element>::line};
    }

    /// The part of a window of Edge x Edge pixels and one line of channels that exists: first pixel, pixels, channels.
    struct cut {
        std::size_t top, left, high, wide, skip_rows, skip_columns;
    };
    template <std::size_t Edge>
    [[nodiscard]] cut inside(std::ptrdiff_t row, std::ptrdiff_t column) const noexcept {
        const auto part = [](std::ptrdiff_t first, std::size_t size, std::size_t& from, std::size_t& count,
                             std::size_t& skip) {
            const auto edge = static_cast<std::ptrdiff_t>(Edge);
            const std::ptrdiff_t begin = std::clamp<std::ptrdiff_t>(-first, 0, edge);
            const std::ptrdiff_t end =
                std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(size) - first, begin, edge);
            skip = static_cast<std::size_t>(begin);
            count = static_cast<std::size_t>(end - begin);
            from = count > 0 ? static_cast<std::size_t>(first + begin) : 0;
        };
        cut out{};
        part(row, rows, out.top, out.high, out.skip_rows);
        part(column, columns, out.left, out.wide, out.skip_columns);
        return out;
    }
    [[nodiscard]] T* at(std::size_t sample, std::size_t row, std::size_t column) const noexcept {
        return data + ((sample * rows + row) * columns + column) * depth;
    }

    /// Transforms the window at (row, column) to row `to_row` of all panels; what is outside of the image is zero. A
    /// whole one fetches the next, if it is to.
    template <class Map, std::size_t step>
    void gather(std::size_t sample, std::ptrdiff_t row, std::ptrdiff_t column, const panels& to, std::size_t to_row,
                bool fetches = true) const noexcept {
        constexpr std::size_t edge = Map::from;
        const cut part = inside<edge>(row, column);
        const T* from = at(sample, part.top, part.left);
        const bool whole = part.high == edge && part.wide == edge;
        const line_pitch spread = to.pitch(Map::to);
        std::size_t c = 0;
        if (whole)
            for (; c + line <= depth; c += line) {
                // The columns that the next tile adds to these.
                if (fetches) fetch_lines<Vectors, edge, step>(from + edge * depth + c, pitch());
                transform_lines<Map, Vectors>(from + c, pitch(), to.line(0, c / line, to_row), spread);
            }
        else
            for (; c + line <= depth; c += line)
                transform_part<Map>(from + c, part, to.line(0, c / line, to_row), spread);
        if (c == depth) return;
        alignas(simd::alignment) element copy[edge * edge * line]{};
        for (std::size_t i = 0; i < part.high; ++i)
            for (std::size_t j = 0; j < part.wide; ++j)
                std::copy_n(from + (i * columns + j) * depth + c, depth - c,
                            copy + ((part.skip_rows + i) * edge + part.skip_columns + j) * line);
        transform_lines<Map, Vectors>(copy, {edge * line, line}, to.line(0, c / line, to_row), spread);
    }

    /// One line of a window of which a part exists, `from` on: rows that do not are read from a line of zeros.
    template <class Map>
    void transform_part(const T* from, const cut& part, element* to, line_pitch spread) const noexcept {
        constexpr std::size_t edge = Map::from;
        alignas(simd::alignment) const element zeros[line]{};
        const T* rows_at[edge];
        std::size_t steps[edge];
        for (std::size_t i = 0; i < edge; ++i) {
            const bool exists = i - part.skip_rows < part.high;
            rows_at[i] = exists ? from + (i - part.skip_rows) * columns * depth : zeros;
            steps[i] = exists ? depth : 0;
        }
        const auto column = [&](std::size_t j, std::size_t v, simd::batch<element>(&d)[edge]) LOCKSTEP_FLATTEN {
            const std::size_t at = j - part.skip_columns;
            if (at < part.wide)
                unroll<edge>([&](auto i) LOCKSTEP_FLATTEN {
                    d[i] = simd::load(rows_at[i] + at * steps[i] + v * simd::width<element>);
                });
            else
                unroll<edge>([&](auto i) LOCKSTEP_FLATTEN { d[i] = simd::batch<element>(element{0}); });
        };
        transform_columns<Map, Vectors>(column, to, spread,
                                        [](element* at, const simd::batch<element>& value, std::size_t)
                                            LOCKSTEP_FLATTEN { simd::store(at, value); });
    }

    /// Transforms row `from_row` of panels first, .. back to the pixels at (row, column) that exist; finish(vector,
    /// channel) goes before. A whole tile goes past the caches, or fetches the place of the next, if it is to.
    template <class Map, class Finish>
    void scatter(std::size_t sample, std::size_t row, std::size_t column, parallel::block lines, const panels& from,
                 std::size_t from_row, Finish&& finish, bool fetches, bool streamed) const noexcept {
        constexpr std::size_t edge = Map::to;
        const std::size_t high = std::min(edge, rows - row);
        const std::size_t wide = std::min(edge, columns - column);
        T* const to = at(sample, row, column);
        const line_pitch spread = from.pitch(Map::from);
        alignas(simd::alignment) T copy[edge * edge * line];
        for (std::size_t l = lines.first; l < lines.last; ++l) {
            const std::size_t c = l * line;
            const std::size_t channels = std::min(line, depth - c);
            const T* const values = from.line(0, l - lines.first, from_row);
            const auto put = [&](T* at, const simd::batch<T>& value, std::size_t v)
                                 LOCKSTEP_FLATTEN { simd::store(at, finish(value, c + v * simd::width<T>)); };
            if (high == edge && wide == edge && channels == line) {
                if (streamed) {
                    transform_lines<Map, Vectors>(
                        values, spread, to + c, pitch(),
                        [&](T* at, const simd::batch<T>& value, std::size_t v)
                            LOCKSTEP_FLATTEN { simd::stream(at, finish(value, c + v * simd::width<T>)); });
                    continue;
                }
                if (fetches) fetch_lines<Vectors, edge, edge, true>(to + edge * depth + c, pitch());
                transform_lines<Map, Vectors>(values, spread, to + c, pitch(), put);
                continue;
            }
            transform_lines<Map, Vectors>(values, spread, copy, {edge * line, line}, put);
            for (std::size_t i = 0; i < high; ++i)
                for (std::size_t j = 0; j < wide; ++j) {
                    T* const pixel = to + (i * columns + j) * depth + c;
                    if (channels == line)
                        std::copy_n(copy + (i * edge + j) * line, line, pixel);
                    else
                        std::copy_n(copy + (i * edge + j) * line, channels, pixel);
                }
        }
    }
};

}  // namespace lockstep::kernels::detail
