// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The register tile: a few rows times two vectors of columns, each element one chain of fused multiply-adds held in a
// register.
// Tested by tests/unit/kernels/matrix/gemm.cpp.

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

/// Accumulators fill the register file, less two vectors of B and one broadcast element of A: 6 x 2 vectors of 16
/// registers, 14 x 2 of 32.
inline constexpr std::size_t tile_vectors = 2;
inline constexpr std::size_t tile_rows = (simd::registers - tile_vectors - 1) / tile_vectors;
template <class T>
inline constexpr std::size_t tile_columns = tile_vectors* simd::width<T>;

/// Rows of a packed panel that multiply() keeps in the first-level cache.
template <class T>
inline constexpr std::size_t panel_depth = 1024 / sizeof(T);

// Straight-line code before the optimiser sees arrays: then the accumulators become registers at every level of
// optimisation.
#define LOCKSTEP_FLATTEN __attribute__((always_inline))
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 64")

template <std::size_t Count, class F>
LOCKSTEP_FLATTEN inline void unroll(F&& f) noexcept {
    [&]<std::size_t... I>(std::index_sequence<I...>) LOCKSTEP_FLATTEN {
        (f(std::integral_constant<std::size_t, I>{}), ...);
    }
    (std::make_index_sequence<Count>{});
}

/// Rows x Vectors accumulators of one tile of C.
template <class T, std::size_t Rows, std::size_t Vectors>
struct accumulators {
    using batch = simd::batch<T>;
    static constexpr std::size_t width = simd::width<T>;
    batch sum[Rows][Vectors];

    /// f(row, vector) for each of them.
    template <class F>
    static LOCKSTEP_FLATTEN void each(const F& f) noexcept {
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Rows; ++i) LOCKSTEP_UNROLL
        for (std::size_t v = 0; v < Vectors; ++v) f(i, v);
    }
    LOCKSTEP_FLATTEN void clear() noexcept {
        each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN { sum[i][v] = batch(T{0}); });
    }
    /// Row i from c[i], or all rows from `start` unless it is null.
    LOCKSTEP_FLATTEN void load(T* const* c, const T* start) noexcept {
        each([&](std::size_t i, std::size_t v)
                 LOCKSTEP_FLATTEN { sum[i][v] = simd::load((start ? start : c[i]) + v * width); });
    }
    LOCKSTEP_FLATTEN void store(T* const* c) const noexcept {
        each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN { simd::store(c[i] + v * width, sum[i][v]); });
    }
    LOCKSTEP_FLATTEN void fetch(T* const* c) const noexcept {
        constexpr std::size_t line = simd::alignment / sizeof(T);
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Rows; ++i)
            for (std::size_t at = 0; at < Vectors * width; at += line) __builtin_prefetch(c[i] + at, 1, 3);
    }
    /// The same with a whole tile in one piece, rows `Pitch` apart.
    template <std::size_t Pitch = tile_columns<T>>
    LOCKSTEP_FLATTEN void load_tile(const T* from) noexcept {
        each([&](std::size_t i, std::size_t v)
                 LOCKSTEP_FLATTEN { sum[i][v] = simd::load(from + i * Pitch + v * width); });
    }
    template <std::size_t Pitch = tile_columns<T>>
    LOCKSTEP_FLATTEN void store_tile(T* to) const noexcept {
        each([&](std::size_t i, std::size_t v)
                 LOCKSTEP_FLATTEN { simd::store(to + i * Pitch + v * width, sum[i][v]); });
    }
    /// One link of every chain: `element(i)` is A's element in row i, `b` the row of B.
    template <class Element>
    LOCKSTEP_FLATTEN void step(const T* b, const Element& element) noexcept {
        batch right[Vectors];
        LOCKSTEP_UNROLL
        for (std::size_t v = 0; v < Vectors; ++v) right[v] = simd::load(b + v * width);
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Rows; ++i) {
            const batch left(element(i));
            LOCKSTEP_UNROLL
            for (std::size_t v = 0; v < Vectors; ++v) sum[i][v] = simd::fma(left, right[v], sum[i][v]);
        }
    }
    /// The same where `element(i)` is a reference, whose address is a register and a constant.
    template <class Element>
    LOCKSTEP_FLATTEN void step_in_place(const T* b, const Element& element) noexcept {
        if constexpr (!simd::broadcasts_in_place) {
            step(b, [&](std::size_t i) LOCKSTEP_FLATTEN { return element(i); });
        } else {
            step_pinned([b](std::size_t v) LOCKSTEP_FLATTEN { return simd::load(b + v * width); }, element);
        }
    }
    /// The same with B's row from `load(v)`, in instructions as they stand here: elements that multiply a single vector
    /// are broadcast inside of the multiply-adds, an instruction less. Where they multiply several, each of those would
    /// load by itself, which costs more.
    template <class Load, class Element>
    LOCKSTEP_FLATTEN void step_pinned(const Load& load, const Element& element) noexcept {
        batch right[Vectors];
        LOCKSTEP_UNROLL
        for (std::size_t v = 0; v < Vectors; ++v) {
            right[v] = load(v);
            simd::pin(right[v]);
        }
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Rows; ++i) {
            if constexpr (Vectors == 1) {
                simd::add_product(sum[i][0], element(i), right[0]);
            } else {
                batch left(element(i));
                simd::pin(left);
                LOCKSTEP_UNROLL
                for (std::size_t v = 0; v < Vectors; ++v) simd::add_product(sum[i][v], left, right[v]);
            }
        }
    }
};

/// Where the elements of A lie that one tile row reads: `segments` runs of `count` elements, `step` apart, runs
/// `segment_stride` apart. A matrix product is one run; a convolution has one for each kernel row.
struct row_chain {
    std::size_t segments = 1;
    std::size_t segment_stride = 0;
    std::size_t count = 0;
    std::size_t step = 1;
    std::size_t b_step = 0;  ///< between rows of B: tile_columns where it is packed

    [[nodiscard]] std::size_t length() const noexcept { return segments * count; }

    static constexpr std::size_t few = 4;  ///< links between two lines that are fetched
    /// Cache lines that a tile fetches beside its links.
    [[nodiscard]] std::size_t fetched_lines() const noexcept {
        return simd::broadcasts_in_place && step == 1 ? segments * (count / few) : 0;
    }

    /// Continues the chains in c, or starts them at `start`; a[i] is the first element of row i, b a packed panel;
    /// memory from `soon` on is fetched, fetched_lines() at most. Compiled once, wherever the rows come from.
    template <std::size_t Rows, std::size_t Vectors, class T>
    [[gnu::noinline]] void run(std::size_t, const T* const* a, const T* b, T* const* c, const T* start,
                               const T* soon) const noexcept {
        accumulators<T, Rows, Vectors> tile;
        tile.load(c, start);
        // Sums that start have not been read: their cache lines are fetched while they grow. Short tiles gain nothing.
        if constexpr (simd::registers >= 32)
            if (start) tile.fetch(c);
        const T* row[Rows];
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Rows; ++i) row[i] = a[i];
        // Addresses of a register and a constant: rows whose links lie side by side, a few links at a time, or rows
        // that themselves do.
        if (simd::broadcasts_in_place && Rows >= tile_rows / 2 && step == 1) {
            for (std::size_t segment = 0; segment < segments; ++segment) {
                const auto links = [&](auto together) LOCKSTEP_FLATTEN {
                    unroll<together>([&](auto link) LOCKSTEP_FLATTEN {
                        tile.step_in_place(b, [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return row[i][link]; });
                        b += b_step;
                    });
                    LOCKSTEP_UNROLL
                    for (std::size_t i = 0; i < Rows; ++i) row[i] += together;
                };
                std::size_t left = count;
                for (; left >= few; left -= few, soon += simd::alignment / sizeof(T)) {
                    __builtin_prefetch(soon, 0, 2);
                    links(std::integral_constant<std::size_t, few>{});
                }
                for (; left > 0; --left) links(std::integral_constant<std::size_t, 1>{});
                LOCKSTEP_UNROLL
                for (std::size_t i = 0; i < Rows; ++i)
                    row[i] += static_cast<std::ptrdiff_t>(segment_stride) - static_cast<std::ptrdiff_t>(count);
            }
            return tile.store(c);
        }
        bool neighbours = simd::broadcasts_in_place && Rows >= tile_rows / 2;
        LOCKSTEP_UNROLL
        for (std::size_t i = 1; i < Rows; ++i) neighbours = neighbours && row[i] == row[0] + i;
        if (neighbours) {
            for (std::size_t segment = 0; segment < segments; ++segment) {
                const T* at = row[0] + segment * segment_stride;
                for (std::size_t p = 0; p < count; ++p, at += step, b += b_step)
                    tile.step_in_place(b, [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return at[i]; });
            }
            return tile.store(c);
        }
        for (std::size_t segment = 0, first = 0; segment < segments; ++segment, first += segment_stride)
            for (std::size_t p = 0, at = first; p < count; ++p, at += step, b += b_step)
                tile.step(b, [&](std::size_t i) LOCKSTEP_FLATTEN { return row[i][at]; });
        tile.store(c);
    }
};

/// A comes packed: panels of tile_rows rows, their elements for one link side by side.
template <class T>
struct packed_chain {
    const T* panels = nullptr;
    std::size_t count = 0;

    [[nodiscard]] std::size_t length() const noexcept { return count; }
    [[nodiscard]] std::size_t fetched_lines() const noexcept { return 0; }

    template <std::size_t Rows, std::size_t Vectors>
    void run(std::size_t panel, const T* const*, const T* b, T* const* c, const T* start, const T*) const noexcept {
        accumulators<T, Rows, Vectors> tile;
        tile.load(c, start);
        const T* a = panels + panel * count * tile_rows;
        for (std::size_t p = 0; p < count; ++p, a += tile_rows, b += tile_columns<T>)
            tile.step_in_place(b, [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return a[i]; });
        tile.store(c);
    }
};

/// Calls f(rows constant) with the lowest of the available heights that covers `count` rows: tile_rows, half of it, and
/// so on down to 1.
template <std::size_t Rows, class F>
inline void with_height(std::size_t count, F&& f) noexcept {
    constexpr std::size_t half = (Rows + 1) / 2;
    if constexpr (Rows > 1) {
        if (count <= half) return with_height<half>(count, f);
    }
    f(std::integral_constant<std::size_t, Rows>{});
}

/// A matrix as rows of A and of C, handed out one after the other.
template <class T>
struct matrix_rows {
    const T* a = nullptr;
    std::size_t lda = 0;
    T* c = nullptr;
    std::size_t ldc = 0;

    void next(const T*& row_a, T*& row_c) noexcept {
        row_a = a;
        row_c = c;
        a += lda;
        c += ldc;
    }
};

/// m x n elements of C from packed panels of B, `panel_stride` elements
/// apart. Chains start at `bias` (n entries or null: zero) if `starts`,
/// else they continue what C holds. `rows` hands out the rows of A and C; it is copied for every few panels. Not cloned
/// for one caller's `starts` and `bias`: what they decide costs nothing beside a tile.
template <class T, class Chain, class Rows>
#if !defined(__clang__)
[[gnu::noclone]]
#endif
void multiply(std::size_t m, std::size_t n, const Chain& chain, const Rows& rows, const T* panels,
                               std::size_t panel_stride, bool starts, const T* bias) noexcept {
    constexpr std::size_t width = simd::width<T>;
    constexpr std::size_t columns = tile_columns<T>;
    // Short panels are taken a few at a time, so that rows of C are written from end to end.
    constexpr std::size_t most = simd::registers >= 32 ? 4 : 1;
    const std::size_t together =
        std::clamp<std::size_t>(16384 / (std::max<std::size_t>(chain.length(), 1) * columns * sizeof(T)), 1, most);
    const T* const origin = panels;
    alignas(simd::alignment) T begin[most * columns];
    alignas(simd::alignment) T buffer[tile_rows * columns];
    for (std::size_t first = 0; first < n; first += together * columns, panels += together * panel_stride) {
        const std::size_t last = std::min(n, first + together * columns);
        for (std::size_t q = 0; q < together * columns; ++q) begin[q] = bias && first + q < n ? bias[first + q] : T{0};
        Rows from = rows;
        // A long panel comes from the second level or from beyond it: the one after this, or its next links, are
        // fetched by the tiles.
        const T* soon = first + columns < n ? panels + panel_stride : origin + chain.length() * columns;
        std::size_t left = together == 1 ? chain.length() * columns : 0;
        for (std::size_t i = 0; i < m; i += tile_rows) {
            const std::size_t high = std::min(tile_rows, m - i);
            const T* a[tile_rows];
            T* c[tile_rows];
            T* into[tile_rows];
            const T* row_a = nullptr;
            T* row_c = nullptr;
            for (std::size_t r = 0; r < tile_rows; ++r) {
                // Rows that are missing repeat the last one and end in the buffer.
                if (r < high) from.next(row_a, row_c);
                a[r] = row_a;
                c[r] = row_c + first;
            }
            const T* panel = panels;
            for (std::size_t j = first; j < last; j += columns, panel += panel_stride) {
                const std::size_t wide = std::min(columns, n - j);
                const T* start = starts ? begin + (j - first) : nullptr;
                const bool narrow = wide <= width;
                const bool whole = wide == columns || wide == width;
                for (std::size_t r = 0; r < tile_rows; ++r) {
                    if (j > first) c[r] += columns;
                    into[r] = whole && r < high ? c[r] : buffer + r * columns;
                }
                if (!whole && !starts)
                    for (std::size_t r = 0; r < high; ++r) std::copy_n(c[r], wide, into[r]);
                with_height<tile_rows>(high, [&](auto height) {
                    if (narrow)
                        chain.template run<height, 1>(i / tile_rows, a, panel, into, start, left > 0 ? soon : panel);
                    else
                        chain.template run<height, tile_vectors>(i / tile_rows, a, panel, into, start,
                                                                 left > 0 ? soon : panel);
                });
                const std::size_t fetched = std::min(left, chain.fetched_lines() * (simd::alignment / sizeof(T)));
                soon += fetched;
                left -= fetched;
                if (!whole)
                    for (std::size_t r = 0; r < high; ++r) std::copy_n(into[r], wide, c[r]);
            }
        }
    }
}

}  // namespace lockstep::kernels::detail
