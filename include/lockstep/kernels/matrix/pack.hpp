// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Packing into panels: `Width` neighbouring columns of a matrix, row after row, so that a register tile reads memory in
// order.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

[[nodiscard]] constexpr std::size_t round_up(std::size_t n, std::size_t unit) noexcept {
    return (n + unit - 1) / unit * unit;
}

/// Elements of T up to the next cache line.
template <class T>
[[nodiscard]] constexpr std::size_t whole_lines(std::size_t n) noexcept {
    return round_up(n, simd::alignment / sizeof(T));
}

///     matrix   a0 a1 a2 a3 a4 a5       panels of 4   a0 a1 a2 a3  b0 b1 b2 b3      panel 0
///              b0 b1 b2 b3 b4 b5                     a4 a5  0  0  b4 b5  0  0      panel 1
/// k x n, rows ld apart, into panels of Width columns, panel_stride apart; the columns that are missing in the last
/// panel become zero.
template <std::size_t Width, class T>
void pack(std::size_t k, std::size_t n, const T* from, std::size_t ld, T* to, std::size_t panel_stride) noexcept {
    // A few rows at a time: long enough runs on both sides, few enough streams.
    constexpr std::size_t run = 8;
    for (std::size_t first = 0; first < k; first += run) {
        const std::size_t last = std::min(k, first + run);
        T* panel = to;
        std::size_t j = 0;
        for (; j + Width <= n; j += Width, panel += panel_stride)
            for (std::size_t p = first; p < last; ++p)
                std::memcpy(panel + p * Width, from + p * ld + j, Width * sizeof(T));
        if (j < n)
            for (std::size_t p = first; p < last; ++p) {
                std::copy_n(from + p * ld + j, n - j, panel + p * Width);
                std::fill_n(panel + p * Width + (n - j), Width - (n - j), T{0});
            }
    }
}

/// Vectors of 16 bytes: shuffles inside of these parts of a register are cheap on every machine.
template <class T>
inline constexpr std::size_t part_size = 16 / sizeof(T);

template <class T, std::size_t Count>
struct vector_of {
    using type [[gnu::vector_size(Count * sizeof(T))]] = T;
};

/// `Parts` parts side by side: the first from row 0, the next from row part_size, and so on.
template <std::size_t Parts, class T>
[[nodiscard]] inline auto load_parts(const T* from, std::size_t ld) noexcept {
    if constexpr (Parts == 1) {
        typename vector_of<T, part_size<T>>::type out;
        std::memcpy(&out, from, sizeof(out));
        return out;
    } else {
        const auto left = load_parts<Parts / 2>(from, ld);
        const auto right = load_parts<Parts / 2>(from + Parts / 2 * part_size<T> * ld, ld);
        return [&]<int... I>(std::integer_sequence<int, I...>) { return __builtin_shufflevector(left, right, I...); }
        (std::make_integer_sequence<int, static_cast<int>(Parts * part_size<T>)>{});
    }
}

/// `count` rounds of interleaving the first half of part_size vectors with the second half, inside of their parts:
/// turns each square of part_size x part_size elements over its diagonal.
template <class T, class Vector>
LOCKSTEP_FLATTEN inline void turn_parts(Vector (&now)[part_size<T>]) noexcept {
    constexpr std::size_t part = part_size<T>;
    const auto interleave = []<int... I>(const Vector& left, const Vector& right, std::size_t high,
                                         std::integer_sequence<int, I...>) LOCKSTEP_FLATTEN {
        constexpr int size = static_cast<int>(part);
        constexpr int all = sizeof...(I);
        const Vector low_half = __builtin_shufflevector(left, right, (I / size * size + I % size / 2 + I % 2 * all)...);
        const Vector high_half =
            __builtin_shufflevector(left, right, (I / size * size + size / 2 + I % size / 2 + I % 2 * all)...);
        return high ? high_half : low_half;
    };
    constexpr auto elements = std::make_integer_sequence<int, static_cast<int>(sizeof(Vector) / sizeof(T))>{};
    Vector then[part];
    unroll<std::bit_width(part) - 1>([&](auto) LOCKSTEP_FLATTEN {
        unroll<part>(
            [&](auto i) LOCKSTEP_FLATTEN { then[i] = interleave(now[i / 2], now[i / 2 + part / 2], i % 2, elements); });
        unroll<part>([&](auto i) LOCKSTEP_FLATTEN { now[i] = then[i]; });
    });
}

/// part_size columns of `width` rows, transposed. Parts of the rows are loaded to where they belong.
template <class T>
LOCKSTEP_FLATTEN inline void transpose_columns(const T* from, std::size_t ld, T* to, std::size_t to_ld) noexcept {
    constexpr std::size_t part = part_size<T>;
    typename vector_of<T, simd::width<T>>::type now[part];
    unroll<part>([&](auto i) LOCKSTEP_FLATTEN { now[i] = load_parts<simd::width<T> / part>(from + i * ld, ld); });
    turn_parts<T>(now);
    unroll<part>([&](auto i) LOCKSTEP_FLATTEN { std::memcpy(to + i * to_ld, &now[i], sizeof(now[i])); });
}

/// A square of width x width elements, transposed; its columns are written in ascending order. Where a register has
/// four parts, each row is read at once: rows whose distance is a power of two would drive each other out of the cache
/// between its parts.
template <class T>
inline void transpose_square(const T* from, std::size_t ld, T* to, std::size_t to_ld) noexcept {
    constexpr std::size_t part = part_size<T>;
    constexpr std::size_t width = simd::width<T>;
    if constexpr (width == 4 * part) {
        using vector = typename vector_of<T, width>::type;
        // Parts 0 and 2 of both, or 1 and 3.
        const auto join = []<int... I>(const vector& left, const vector& right, auto odd,
                                       std::integer_sequence<int, I...>) LOCKSTEP_FLATTEN {
            constexpr int size = static_cast<int>(part);
            constexpr int start = static_cast<int>(odd()) * size;
            return __builtin_shufflevector(left, right,
                                           (I / (2 * size) * 4 * size + I / size % 2 * 2 * size + start + I % size)...);
        };
        constexpr auto elements = std::make_integer_sequence<int, static_cast<int>(width)>{};
        vector now[4][part];
        unroll<4>([&](auto group) LOCKSTEP_FLATTEN {
            unroll<part>([&](auto i) LOCKSTEP_FLATTEN {
                std::memcpy(&now[group][i], from + (group * part + i) * ld, sizeof(vector));
            });
            turn_parts<T>(now[group]);
        });
        unroll<part>([&](auto i) LOCKSTEP_FLATTEN {
            vector then[4];
            unroll<2>([&](auto odd) LOCKSTEP_FLATTEN {
                then[odd] = join(now[0][i], now[1][i], odd, elements);
                then[odd + 2] = join(now[2][i], now[3][i], odd, elements);
            });
            unroll<2>([&](auto odd) LOCKSTEP_FLATTEN {
                now[odd * 2][i] = join(then[0], then[2], odd, elements);
                now[odd * 2 + 1][i] = join(then[1], then[3], odd, elements);
            });
        });
        unroll<4>([&](auto group) LOCKSTEP_FLATTEN {
            unroll<part>([&](auto i) LOCKSTEP_FLATTEN {
                std::memcpy(to + (group * part + i) * to_ld, &now[group][i], sizeof(vector));
            });
        });
    } else {
        for (std::size_t column = 0; column < width; column += part)
            transpose_columns(from + column, ld, to + column * to_ld, to_ld);
    }
}

/// The same panels from the transposed matrix: n x k, rows ld apart.
template <std::size_t Width, class T>
void pack_transposed(std::size_t k, std::size_t n, const T* from, std::size_t ld, T* to,
                     std::size_t panel_stride) noexcept {
    constexpr std::size_t width = simd::width<T>;
    for (std::size_t j = 0; j < n; j += Width, to += panel_stride)
        for (std::size_t q = 0; q < Width; q += width) {
            const T* rows = from + (j + q) * ld;
            std::size_t p = 0;
            if (j + q + width <= n)
                for (; p + width <= k; p += width) transpose_square(rows + p, ld, to + p * Width + q, Width);
            for (; p < k; ++p)
                for (std::size_t c = 0; c < width; ++c) to[p * Width + q + c] = j + q + c < n ? rows[c * ld + p] : T{0};
        }
}

/// Links `links` of a vector of columns, or of less (zeros after them), from the transposed matrix; they are written
/// `to_ld` apart.
template <class T>
void pack_turned(parallel::block links, std::size_t wide, const T* from, std::size_t ld, T* to,
                 std::size_t to_ld) noexcept {
    constexpr std::size_t width = simd::width<T>;
    std::size_t p = links.first;
    if (wide == width) {
        for (; p + width <= links.last; p += width) transpose_square(from + p, ld, to + p * to_ld, to_ld);
        if (p < links.last && links.last >= width) {
            // A square that repeats some links of the one before.
            p = links.last - width;
            transpose_square(from + p, ld, to + p * to_ld, to_ld);
            p = links.last;
        }
    }
    for (; p < links.last; ++p)
        for (std::size_t c = 0; c < width; ++c) to[p * to_ld + c] = c < wide ? from[c * ld + p] : T{0};
}

/// Links `links` of one panel of B as run_tiles reads it: `wide` columns from the first on, in one vector or in two
/// that may overlap. Needs a whole vector of columns.
template <class T>
void pack_panel(bool transposed, parallel::block links, std::size_t wide, const T* from, std::size_t ld,
                T* to) noexcept {
    constexpr std::size_t width = simd::width<T>;
    constexpr std::size_t columns = 2 * width;
    const std::size_t second = wide > width ? wide - width : 0;
    if (!transposed) {
        from += links.first * ld;
        to += links.first * columns;
        for (std::size_t link = links.first; link < links.last; ++link, from += ld, to += columns) {
            const simd::batch<T> left = simd::load(from);
            const simd::batch<T> right = simd::load(from + second);
            simd::store(to, left);
            simd::store(to + width, right);
        }
        return;
    }
    pack_turned(links, width, from, ld, to, columns);
    if (second > 0) pack_turned(links, width, from + second * ld, ld, to + width, columns);
}

/// The same for fewer columns than a vector has: zeros after them.
template <class T>
void pack_narrow(bool transposed, parallel::block links, std::size_t wide, const T* from, std::size_t ld,
                 T* to) noexcept {
    constexpr std::size_t columns = 2 * simd::width<T>;
    for (std::size_t p = links.first; p < links.last; ++p)
        for (std::size_t c = 0; c < simd::width<T>; ++c)
            to[p * columns + c] = c >= wide ? T{0} : transposed ? from[c * ld + p] : from[p * ld + c];
}

}  // namespace lockstep::kernels::detail
