// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Packing into panels: `Width` neighbouring columns of a matrix, row after row, so that a register tile reads memory in order.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

[[nodiscard]] constexpr std::size_t round_up(std::size_t n, std::size_t unit) noexcept { return (n + unit - 1) / unit * unit; }

/// Elements of T up to the next cache line.
template <class T>
[[nodiscard]] constexpr std::size_t whole_lines(std::size_t n) noexcept {
    return round_up(n, simd::alignment / sizeof(T));
}

/// k x n, rows ld apart, into panels of Width columns, panel_stride apart; the columns that are missing in the last panel become zero.
template <std::size_t Width, class T>
void pack(std::size_t k, std::size_t n, const T* from, std::size_t ld, T* to, std::size_t panel_stride) noexcept {
    // A few rows at a time: long enough runs on both sides, few enough streams.
    constexpr std::size_t run = 8;
    for (std::size_t first = 0; first < k; first += run) {
        const std::size_t last = std::min(k, first + run);
        T* panel = to;
        std::size_t j = 0;
        for (; j + Width <= n; j += Width, panel += panel_stride)
            for (std::size_t p = first; p < last; ++p) std::memcpy(panel + p * Width, from + p * ld + j, Width * sizeof(T));
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

/// A square of width x width elements, transposed. Parts of the rows are
/// loaded to where they belong; then log2(part_size) rounds interleave
/// the first half of the vectors with the second inside of the parts.
template <class T>
inline void transpose_square(const T* from, std::size_t ld, T* to, std::size_t to_ld) noexcept {
    constexpr std::size_t width = simd::width<T>;
    constexpr std::size_t part = part_size<T>;
    using vector = typename vector_of<T, width>::type;
    const auto interleave = []<int... I>(const vector& left, const vector& right, std::size_t high, std::integer_sequence<int, I...>) {
        constexpr int size = static_cast<int>(part);
        constexpr int all = static_cast<int>(width);
        const vector low_half = __builtin_shufflevector(left, right, (I / size * size + I % size / 2 + I % 2 * all)...);
        const vector high_half = __builtin_shufflevector(left, right, (I / size * size + size / 2 + I % size / 2 + I % 2 * all)...);
        return high ? high_half : low_half;
    };
    constexpr auto elements = std::make_integer_sequence<int, static_cast<int>(width)>{};
    for (std::size_t column = 0; column < width; column += part) {
        vector now[part];
        vector then[part];
        for (std::size_t i = 0; i < part; ++i) now[i] = load_parts<width / part>(from + i * ld + column, ld);
        for (std::size_t round = 1; round < part; round *= 2) {
            for (std::size_t i = 0; i < part; ++i) then[i] = interleave(now[i / 2], now[i / 2 + part / 2], i % 2, elements);
            for (std::size_t i = 0; i < part; ++i) now[i] = then[i];
        }
        for (std::size_t i = 0; i < part; ++i) std::memcpy(to + (column + i) * to_ld, &now[i], sizeof(vector));
    }
}

/// The same panels from the transposed matrix: n x k, rows ld apart.
template <std::size_t Width, class T>
void pack_transposed(std::size_t k, std::size_t n, const T* from, std::size_t ld, T* to, std::size_t panel_stride) noexcept {
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

}  // namespace lockstep::kernels::detail
