// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Products whose operands all lie in the caches next to the core: tiles read them there, at the least cost of their
// beginnings and ends.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/product.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels::detail {

/// Sizes of near tiles: 6 x 4 vectors take fewer loads than 14 x 2, which counts where rows of B lie wide apart. One
/// vector alone takes as many rows as it takes to hide the latency of its sums.
inline constexpr std::size_t near_rows = 6;
inline constexpr std::size_t near_vectors = 4;
inline constexpr std::size_t near_high = 16;

/// Of all three matrices: two to three times the first-level cache. Twice that where B is transposed, whose panels are
/// packed in either way.
inline constexpr std::size_t near_bytes = 98304;

/// Some rows of A and C and some vectors of columns.
template <class T>
struct near_task {
    const T* a = nullptr;
    std::size_t a_row = 0;   ///< between rows of A
    std::size_t a_link = 1;  ///< between links
    const T* b = nullptr;
    std::size_t ldb = 0;
    std::size_t links = 0;
    T* c = nullptr;
    std::size_t ldc = 0;
    const T* start = nullptr;  ///< of the chains, whole vectors; null: what C holds
    std::size_t last = 0;      ///< columns of the last vector
};

/// One tile of Height x Vectors. That of one vector takes A as its rows lie (a_link 1).
template <class T, std::size_t Height, std::size_t Vectors>
void run_near_tile(const near_task<T>& task) noexcept {
    constexpr std::size_t width = simd::width<T>;
    constexpr std::size_t pointers = (Height + 2) / 3;
    const std::size_t last = task.last;
    const auto load = [last](const T* from, std::size_t v) LOCKSTEP_FLATTEN {
        return v + 1 < Vectors ? simd::load(from + v * width) : simd::load_first(from + v * width, last);
    };
    accumulators<T, Height, Vectors> tile;
    tile.each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN {
        tile.sum[i][v] = task.start ? simd::load(task.start + v * width) : load(task.c + i * task.ldc, v);
    });
    const std::size_t a_row = task.a_row;
    const std::size_t a_link = task.a_link;
    const std::size_t ldb = task.ldb;
    const T* b = task.b;
    const T* a[pointers];
    LOCKSTEP_UNROLL
    for (std::size_t i = 0; i < pointers; ++i) a[i] = task.a + i * 3 * a_row;
    // Links of A that lie side by side: a few at a time, their addresses are constants.
    constexpr std::size_t several = Vectors == 1 ? 4 : 1;
    const auto run_links = [&](auto count) LOCKSTEP_FLATTEN {
        unroll<count>([&](auto link) LOCKSTEP_FLATTEN {
            tile.step_pinned([&](std::size_t v) LOCKSTEP_FLATTEN { return load(b, v); },
                             [&](std::size_t i)
                                 LOCKSTEP_FLATTEN -> const T& { return (a[i / 3] + i % 3 * a_row)[link]; });
            b += ldb;
        });
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < pointers; ++i) a[i] += Vectors == 1 ? count() : a_link;
    };
    std::size_t left = task.links;
    for (; left >= several; left -= several) run_links(std::integral_constant<std::size_t, several>{});
    if constexpr (several > 1)
        for (; left > 0; --left) run_links(std::integral_constant<std::size_t, 1>{});
    LOCKSTEP_UNROLL
    for (std::size_t i = 0; i < Height; ++i) {
        T* const to = task.c + i * task.ldc;
        LOCKSTEP_UNROLL
        for (std::size_t v = 0; v + 1 < Vectors; ++v) simd::store(to + v * width, tile.sum[i][v]);
        simd::store_first(to + (Vectors - 1) * width, tile.sum[i][Vectors - 1], last);
    }
}

template <class T>
struct near_product {
    static constexpr std::size_t width = simd::width<T>;

    /// Where vectors have masks and registers are many.
    static constexpr bool exists = simd::registers > 16 && width * sizeof(T) == simd::alignment;

    /// Whether it is worth it: all operands together are small, columns are enough for tiles of three vectors, and rows
    /// for tiles that differ by one row at most. No more columns than a vector has, but more than three fifths, where A
    /// would have to be transposed: however long it is.
    [[nodiscard]] static bool takes(const product<T>& of) noexcept {
        if (of.m < (near_rows - 1) * (near_rows - 2) || of.n == 0 || of.k == 0) return false;
        const std::size_t b_size = of.k * of.n * sizeof(T);
        if (of.n <= width)
            return of.ta == transpose::no && of.tb == transpose::no && of.starts && 5 * of.n > 3 * width &&
                   b_size <= near_bytes / 3;
        const std::size_t most = of.tb == transpose::yes ? 2 * near_bytes : near_bytes;
        return of.n > 2 * width && (of.m * of.k + of.m * of.n) * sizeof(T) + b_size <= most;
    }

    /// `packed` has room for a panel of near_vectors.
    static void run(const product<T>& of, T* packed) noexcept {
        alignas(simd::alignment) T begin[near_vectors * width]{};
        near_task<T> task;
        task.a_row = of.ta == transpose::no ? of.lda : 1;
        task.a_link = of.ta == transpose::no ? 1 : of.lda;
        task.links = of.k;
        task.ldc = of.ldc;
        task.start = of.starts ? begin : nullptr;
        const std::size_t vectors = (of.n + width - 1) / width;
        const std::size_t panels = (vectors + near_vectors - 1) / near_vectors;
        for (std::size_t panel = 0; panel < panels; ++panel) {
            const parallel::block mine = parallel::split(vectors, panels, panel);
            const std::size_t first = mine.first * width;
            const std::size_t wide = std::min(mine.size() * width, of.n - first);
            if (of.bias) std::copy_n(of.bias + first, wide, begin);
            task.a = of.a;
            task.c = of.c + first;
            task.last = wide - (mine.size() - 1) * width;
            task.b = of.tb == transpose::no ? of.b + first : packed;
            task.ldb = of.tb == transpose::no ? of.ldb : mine.size() * width;
            if (of.tb == transpose::yes)
                for (std::size_t v = 0; v < mine.size(); ++v)
                    pack_turned({0, of.k}, std::min(width, wide - v * width), of.b + (first + v * width) * of.ldb,
                                of.ldb, packed + v * width, task.ldb);
            with_vectors(mine.size(), task, of.m);
        }
    }

private:
    static void with_vectors(std::size_t vectors, const near_task<T>& task, std::size_t m) noexcept {
        if (vectors == 1) return run_high(task, m);
        if (vectors == 2) return run_rows<2>(task, m);
        if (vectors == 3) return run_rows<3>(task, m);
        run_rows<4>(task, m);
    }
    template <std::size_t Vectors>
    static void run_rows(near_task<T> task, std::size_t m) noexcept {
        const std::size_t tiles = (m + near_rows - 1) / near_rows;
        const std::size_t high = tiles - (tiles * near_rows - m);
        for (std::size_t tile = 0; tile < tiles; ++tile) {
            const std::size_t rows = tile < high ? near_rows : near_rows - 1;
            if (tile < high)
                run_near_tile<T, near_rows, Vectors>(task);
            else
                run_near_tile<T, near_rows - 1, Vectors>(task);
            task.a += rows * task.a_row;
            task.c += rows * task.ldc;
        }
    }
    /// The last tile repeats rows of the one before it.
    static void run_high(near_task<T> task, std::size_t m) noexcept {
        const near_task<T> all = task;
        for (std::size_t i = 0; i < m; i += near_high) {
            const std::size_t first = std::min(i, m - near_high);
            task.a = all.a + first * all.a_row;
            task.c = all.c + first * all.ldc;
            run_near_tile<T, near_high, 1>(task);
        }
    }
};

}  // namespace lockstep::kernels::detail
