// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Products of a few rows, as of single predictions: B is read once, as it lies, at the bandwidth of the caches.
// Tested by tests/unit/kernels/matrix/gemm.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/matrix/product.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels::detail {

/// A tile takes a strip of B from its first row to its last: rows lie wide apart, and each strip waits for memory. Here
/// a few rows of B are walked from end to end instead, which the processor fetches ahead by itself:
///
///     B   ---------------->     links 0 .. 3: a vector of sums is read, takes four links, and is written
///         ---------------->
///         ---------------->
///         ---------------->
///         ---------------->     links 4 .. 7
///         ..
///
/// The sums of all rows lie side by side for each vector of columns, in 16 KiB on the stack: in C, rows that are a
/// multiple of 4096 bytes apart would hide each other's loads behind their stores. Where B has a few vectors of columns
/// only, all sums stay in registers. Each element is the chain that gemm() promises.
template <class T>
struct few_rows_product {
    using batch = simd::batch<T>;
    static constexpr std::size_t width = simd::width<T>;
    /// The links of a walk, for all rows, and their sums are held in registers.
    static constexpr std::size_t most = simd::registers > 16 ? 5 : 4;
    static constexpr std::size_t links_for(std::size_t rows) noexcept {
        return simd::registers > 16 || rows <= 2 ? 4 : 2;
    }
    static constexpr std::size_t most_far = simd::registers > 16 ? 5 : 8;  ///< rows; with more tiles are as quick
    static constexpr std::size_t narrow = 4;                               ///< vectors whose sums stay in registers
    static constexpr std::size_t most_sums = 16384 / sizeof(T);
    static_assert(most_sums >= most * narrow * width);

    /// Bytes of B from which on it comes from far away. Nearer to the core, tiles of two rows and more are quicker.
    static constexpr std::size_t far = 262144;
    static constexpr std::size_t far_for(std::size_t rows) noexcept {
        return simd::registers > 16 || rows <= 2 ? far : 2 * far;
    }

    [[nodiscard]] static bool takes(const product<T>& of) noexcept {
        if (of.m == 0 || of.n == 0 || of.k == 0 || of.tb != transpose::no) return false;
        if (of.n <= width) return of.m < width;
        return of.m == 1 || (of.m == 2 && of.n <= narrow * width) ||
               (of.m <= most_far && of.k * of.n * sizeof(T) > far_for(of.m));
    }

    static void run(const product<T>& all) noexcept {
        for (std::size_t first = 0; first < all.m; first += most) {
            product<T> of = all;
            of.m = std::min(most, all.m - first);
            of.a += first * (of.ta == transpose::no ? of.lda : 1);
            of.c += first * of.ldc;
            if (of.m == 1)
                run_rows<1>(of);
            else if (of.m == 2)
                run_rows<2>(of);
            else
                run_rows<most>(of);  // fewer with the last one repeated: as quick
        }
    }

private:
    /// Rows of A and C; those that are missing repeat the last one, to the same bits.
    struct rows_of {
        std::array<const T*, most> a;
        std::array<T*, most> c;
        std::size_t a_link;

        explicit rows_of(const product<T>& of) noexcept : a_link{of.ta == transpose::no ? 1 : of.lda} {
            for (std::size_t r = 0; r < most; ++r) {
                const std::size_t row = std::min(r, of.m - 1);
                a[r] = of.a + row * (of.ta == transpose::no ? of.lda : 1);
                c[r] = of.c + row * of.ldc;
            }
        }
    };

    template <std::size_t Rows>
    static void run_rows(const product<T>& of) noexcept {
        const rows_of rows(of);
        alignas(simd::alignment) T sums[most_sums];
        constexpr std::size_t strip = most_sums / Rows / width * width;
        for (std::size_t first = 0; first < of.n; first += strip) {
            const std::size_t count = std::min(strip, of.n - first);
            copy(of, rows, Rows, first, count, sums, true);
            if (of.n <= width)
                add_narrow<Rows, 1>(of, rows, sums);
            else if (Rows <= 2 && of.n <= narrow * width)
                add_narrow<Rows, Rows <= 2 ? narrow : 1>(of, rows, sums);
            else
                add_strip<Rows>(of, rows, first, count, sums);
            copy(of, rows, Rows, first, count, sums, false);
        }
    }

    /// What the chains of some columns start from, or come to: each vector of all rows, then the next one.
    [[gnu::noinline]] static void copy(const product<T>& of, const rows_of& rows, std::size_t high, std::size_t first,
                                       std::size_t count, T* sums, bool begins) noexcept {
        for (std::size_t at = 0; at < count; at += width)
            for (std::size_t r = 0; r < high; ++r, sums += width) {
                const std::size_t wide = std::min(width, count - at);
                T* const c = rows.c[r] + first + at;
                if (!begins)
                    simd::store_first(c, simd::load(sums), wide);
                else if (!of.starts)
                    simd::store(sums, simd::load_first(c, wide));
                else
                    simd::store(sums, of.bias ? simd::load_first(of.bias + first + at, wide) : batch(T{0}));
            }
    }

    /// All columns at once, at most Vectors of them. What lies in `sums` after the last one is not used.
    template <std::size_t Rows, std::size_t Vectors>
    [[gnu::noinline]] static void add_narrow(const product<T>& of, const rows_of& rows, T* sums) noexcept {
        // Columns that do not exist are not read.
        std::size_t count[Vectors], at[Vectors];
        LOCKSTEP_UNROLL
        for (std::size_t v = 0; v < Vectors; ++v) {
            at[v] = std::min(v * width, of.n);
            count[v] = std::min(width, of.n - at[v]);
        }
        batch sum[Vectors][Rows];
        const auto each = [&](const auto& f) LOCKSTEP_FLATTEN {
            LOCKSTEP_UNROLL
            for (std::size_t v = 0; v < Vectors; ++v) LOCKSTEP_UNROLL
            for (std::size_t r = 0; r < Rows; ++r) f(v, r);
        };
        each([&](std::size_t v, std::size_t r)
                 LOCKSTEP_FLATTEN { sum[v][r] = simd::load(sums + (v * Rows + r) * width); });
        const T* b = of.b;
        for (std::size_t p = 0; p < of.k; ++p, b += of.ldb) {
            batch left[Rows];
            LOCKSTEP_UNROLL
            for (std::size_t r = 0; r < Rows; ++r) left[r] = batch(rows.a[r][p * rows.a_link]);
            LOCKSTEP_UNROLL
            for (std::size_t v = 0; v < Vectors; ++v) {
                const batch right = simd::load_first(b + at[v], count[v]);
                LOCKSTEP_UNROLL
                for (std::size_t r = 0; r < Rows; ++r) sum[v][r] = simd::fma(left[r], right, sum[v][r]);
            }
        }
        each([&](std::size_t v, std::size_t r)
                 LOCKSTEP_FLATTEN { simd::store(sums + (v * Rows + r) * width, sum[v][r]); });
    }

    template <std::size_t Rows>
    [[gnu::noinline]] static void add_strip(const product<T>& of, const rows_of& rows, std::size_t first,
                                            std::size_t count, T* sums) noexcept {
        constexpr std::size_t links = links_for(Rows);
        std::size_t p = 0;
        for (; p + links <= of.k; p += links) add_links<Rows, links>(of, rows, p, first, count, sums);
        for (; p < of.k; ++p) add_links<Rows, 1>(of, rows, p, first, count, sums);
    }

    /// Some links of all chains.
    template <std::size_t Rows, std::size_t Links>
    LOCKSTEP_FLATTEN static void add_links(const product<T>& of, const rows_of& rows, std::size_t p, std::size_t first,
                                           std::size_t count, T* sums) noexcept {
        batch left[Rows][Links];
        LOCKSTEP_UNROLL
        for (std::size_t r = 0; r < Rows; ++r) LOCKSTEP_UNROLL
        for (std::size_t q = 0; q < Links; ++q) left[r][q] = batch(rows.a[r][(p + q) * rows.a_link]);
        // Stores of vectors might change what `of` has, to the compiler.
        const std::size_t ldb = of.ldb;
        const T* b = of.b + p * ldb + first;
        const auto add = [&](const auto& load) LOCKSTEP_FLATTEN {
            batch sum[Rows];
            LOCKSTEP_UNROLL
            for (std::size_t r = 0; r < Rows; ++r) sum[r] = simd::load(sums + r * width);
            LOCKSTEP_UNROLL
            for (std::size_t q = 0; q < Links; ++q) {
                const batch right = load(b + q * ldb);
                LOCKSTEP_UNROLL
                for (std::size_t r = 0; r < Rows; ++r) sum[r] = simd::fma(left[r][q], right, sum[r]);
            }
            LOCKSTEP_UNROLL
            for (std::size_t r = 0; r < Rows; ++r) simd::store(sums + r * width, sum[r]);
            sums += Rows * width;
            b += width;
        };
        std::size_t left_over = count;
        for (; left_over >= width; left_over -= width)
            add([](const T* from) LOCKSTEP_FLATTEN { return simd::load(from); });
        if (left_over > 0)
            add([left_over](const T* from) LOCKSTEP_FLATTEN { return simd::load_first(from, left_over); });
    }
};

}  // namespace lockstep::kernels::detail
