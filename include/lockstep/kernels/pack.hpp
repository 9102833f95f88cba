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

/// A square of width x width elements, transposed in registers: log2(width) rounds of interleaving the first half with the second.
template <class T>
inline void transpose_square(const T* from, std::size_t ld, T* to, std::size_t to_ld) noexcept {
    constexpr std::size_t width = simd::width<T>;
    using vector [[gnu::vector_size(width * sizeof(T))]] = T;
    vector now[width];
    vector then[width];
    for (std::size_t i = 0; i < width; ++i) std::memcpy(&now[i], from + i * ld, sizeof(vector));
    const auto interleave = [&]<std::size_t... I>(std::index_sequence<I...>) {
        for (std::size_t i = 0; i < width / 2; ++i) {
            then[2 * i] = __builtin_shufflevector(now[i], now[i + width / 2], static_cast<int>(I / 2 + I % 2 * width)...);
            then[2 * i + 1] =
                __builtin_shufflevector(now[i], now[i + width / 2], static_cast<int>(width / 2 + I / 2 + I % 2 * width)...);
        }
    };
    for (std::size_t round = 1; round < width; round *= 2) {
        interleave(std::make_index_sequence<width>{});
        for (std::size_t i = 0; i < width; ++i) now[i] = then[i];
    }
    for (std::size_t i = 0; i < width; ++i) std::memcpy(to + i * to_ld, &now[i], sizeof(vector));
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
