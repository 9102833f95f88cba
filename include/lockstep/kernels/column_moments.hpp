// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Normalisation of columns: means and variances of each, y = (x - mean) scale + shift, and the backward pass. What batch normalisation runs on
// the pixels of a lane. Sums go over chunks of rows of a fixed size and are added in ascending order, whoever computed a chunk.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/channels.hpp"
#include "lockstep/kernels/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

namespace detail {

/// Rows of a chunk: it stays in the second-level cache, and depends on the number of columns alone.
[[nodiscard]] constexpr std::size_t chunk_rows(std::size_t n) noexcept {
    return std::max<std::size_t>(16, 8192 / std::max<std::size_t>(n, 1));
}
[[nodiscard]] constexpr std::size_t chunk_count(std::size_t rows, std::size_t n) noexcept {
    return (rows + chunk_rows(n) - 1) / chunk_rows(n);
}

/// Columns that a thread takes: whole cache lines.
template <class T>
inline constexpr std::size_t column_grain = simd::alignment / sizeof(T);

/// Calls f(rows, two times n numbers of the chunk) for each chunk.
template <class T, class F>
void for_chunks(std::size_t rows, std::size_t n, resources<T> use, F&& f) noexcept {
    const std::size_t high = chunk_rows(n);
    parallel::for_blocks(use.team, chunk_count(rows, n), 1, [&](parallel::block mine) {
        for (std::size_t chunk = mine.first; chunk < mine.last; ++chunk)
            f(parallel::block{chunk * high, std::min(rows, (chunk + 1) * high)}, use.scratch.data() + 2 * n * chunk);
    });
}

/// Asks for the row below in the next chunk, once for each cache line.
template <class T>
LOCKSTEP_FLATTEN inline void prefetch_chunk(const T* from, std::size_t vector, std::size_t ahead) noexcept {
    if (vector * simd::width<T> * sizeof(T) % simd::alignment == 0) __builtin_prefetch(from + vector * simd::width<T> + ahead, 0, 2);
}

}  // namespace detail

/// Elements of scratch of column_moments and column_slopes.
template <class T>
[[nodiscard]] constexpr std::size_t column_sums_scratch(std::size_t rows, std::size_t n) noexcept {
    return 2 * n * detail::chunk_count(rows, n);
}

/// mean[j] and variance[j] (the mean squared distance from it) of column j of x, rows x n; zeros without rows. A chunk's mean is known before
/// its squares are added (two passes over cache), and chunks are joined with the formula of Chan, Golub, LeVeque (1979): nothing cancels. One
/// pass over memory.
template <class T>
void column_moments(std::size_t rows, std::size_t n, const T* x, T* mean, T* variance, resources<T> use) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    using detail::unroll;
    const std::size_t ahead = detail::chunk_rows(n) * n;
    detail::for_chunks(rows, n, use, [&](parallel::block chunk, T* out) {
        const vector share(T{1} / static_cast<T>(chunk.size()));
        detail::for_channels<T>(n, [&](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
            vector middle[count];
            vector squares[count];
            const T* const begin = x + chunk.first * n + c;
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN { middle[v] = squares[v] = vector(T{0}); });
            const T* from = begin;
            for (std::size_t row = 0; row < chunk.size(); ++row, from += n)
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN { middle[v] = middle[v] + part.load(from + v * width); });
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN { middle[v] = middle[v] * share; });
            from = begin;
            for (std::size_t row = 0; row < chunk.size(); ++row, from += n)
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    const vector distance = part.load(from + v * width) - middle[v];
                    detail::prefetch_chunk(from, v, ahead);
                    squares[v] = simd::fma(distance, distance, squares[v]);
                });
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                part.store(out + c + v * width, middle[v]);
                part.store(out + n + c + v * width, squares[v]);
            });
        });
    });
    parallel::for_blocks(use.team, n, detail::column_grain<T>, [&](parallel::block mine) {
        detail::for_channels<T>(mine.size(), [&](const auto part, std::size_t at, auto count) LOCKSTEP_FLATTEN {
            for (std::size_t v = 0; v < count; ++v) {
                const std::size_t c = mine.first + at + v * width;
                vector middle(T{0});
                vector squares(T{0});
                const std::size_t high = detail::chunk_rows(n);
                for (std::size_t seen = 0; seen < rows; seen += high) {
                    const std::size_t more = std::min(high, rows - seen);
                    const T* from = use.scratch.data() + 2 * n * (seen / high) + c;
                    const T part_of_all = static_cast<T>(static_cast<double>(more) / static_cast<double>(seen + more));
                    const vector apart = part.load(from) - middle;
                    middle = simd::fma(apart, vector(part_of_all), middle);
                    squares = squares + part.load(from + n);
                    squares = simd::fma(apart * apart, vector(part_of_all * static_cast<T>(seen)), squares);
                }
                part.store(mean + c, middle);
                part.store(variance + c, squares * vector(rows == 0 ? T{0} : T{1} / static_cast<T>(rows)));
            }
        });
    });
}

/// y = (x - mean) scale + shift in each column. x and y are the same array or disjoint.
template <class T>
void normalise_columns(std::size_t rows, std::size_t n, const T* x, const T* mean, const T* scale, const T* shift, T* y,
                       parallel::team team) noexcept {
    constexpr std::size_t width = simd::width<T>;
    parallel::for_blocks(team, rows, 16, [&](parallel::block mine) {
        for (std::size_t row = mine.first; row < mine.last; ++row)
            detail::for_channels<T>(n, [&](const auto part, std::size_t at, auto count) LOCKSTEP_FLATTEN {
                detail::unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    const std::size_t c = at + v * width;
                    part.store(y + row * n + c,
                               simd::fma(part.load(x + row * n + c) - part.load(mean + c), part.load(scale + c), part.load(shift + c)));
                });
            });
    });
}

/// slope[j] = sum of dy (x - mean[j]) inverse[j] and sum[j] = sum of dy in column j: the gradients of scale and shift of normalised columns.
/// Chunks are added in ascending order; zeros without rows. One pass over memory.
template <class T>
void column_slopes(std::size_t rows, std::size_t n, const T* x, const T* dy, const T* mean, const T* inverse, T* slope, T* sum,
                   resources<T> use) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    using detail::unroll;
    detail::for_chunks(rows, n, use, [&](parallel::block chunk, T* out) {
        detail::for_channels<T>(n, [&](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
            vector middle[count];
            vector product[count];
            vector plain[count];
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                middle[v] = part.load(mean + c + v * width);
                product[v] = plain[v] = vector(T{0});
            });
            for (std::size_t row = chunk.first; row < chunk.last; ++row)
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    const vector one = part.load(dy + row * n + c + v * width);
                    plain[v] = plain[v] + one;
                    product[v] = simd::fma(one, part.load(x + row * n + c + v * width) - middle[v], product[v]);
                });
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                part.store(out + c + v * width, product[v] * part.load(inverse + c + v * width));
                part.store(out + n + c + v * width, plain[v]);
            });
        });
    });
    parallel::for_blocks(use.team, n, detail::column_grain<T>, [&](parallel::block mine) {
        std::fill_n(slope + mine.first, mine.size(), T{0});
        std::fill_n(sum + mine.first, mine.size(), T{0});
        for (std::size_t chunk = 0; chunk < detail::chunk_count(rows, n); ++chunk) {
            const T* from = use.scratch.data() + 2 * n * chunk;
            for (std::size_t c = mine.first; c < mine.last; ++c) {
                slope[c] += from[c];
                sum[c] += from[n + c];
            }
        }
    });
}

/// dx = (dy - share_of_sum - (x - mean) share_of_slope) scale in each column: the gradient of normalised columns whose mean and variance follow
/// x, with scale = gamma inverse, share_of_sum = sum / rows and share_of_slope = inverse slope / rows. dx may be dy.
template <class T>
void normalise_columns_backward(std::size_t rows, std::size_t n, const T* x, const T* dy, const T* mean, const T* scale,
                                const T* share_of_sum, const T* share_of_slope, T* dx, parallel::team team) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    parallel::for_blocks(team, rows, 16, [&](parallel::block mine) {
        for (std::size_t row = mine.first; row < mine.last; ++row)
            detail::for_channels<T>(n, [&](const auto part, std::size_t at, auto count) LOCKSTEP_FLATTEN {
                detail::unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    const std::size_t c = at + v * width;
                    const vector distance = part.load(mean + c) - part.load(x + row * n + c);
                    const vector centred = part.load(dy + row * n + c) - part.load(share_of_sum + c);
                    part.store(dx + row * n + c, simd::fma(distance, part.load(share_of_slope + c), centred) * part.load(scale + c));
                });
            });
    });
}

}  // namespace lockstep::kernels
