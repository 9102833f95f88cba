// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Normalisation of columns: means and variances of each, y = (x - mean) scale + shift, and the backward pass. What
// batch normalisation runs on the pixels of a lane. Sums go over chunks of rows of a fixed size and are added in
// ascending order, whichever thread computed a chunk. What follows a normalisation, relu or a sum and relu, is computed
// in the same passes.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::kernels {

namespace detail {

/// Rows of a chunk: depends on the number of columns alone.
[[nodiscard]] constexpr std::size_t chunk_rows(std::size_t n) noexcept {
    return std::max<std::size_t>(64, 8192 / std::max<std::size_t>(n, 1));
}
[[nodiscard]] constexpr std::size_t chunk_count(std::size_t rows, std::size_t n) noexcept {
    return (rows + chunk_rows(n) - 1) / chunk_rows(n);
}

/// Columns that a thread takes: whole cache lines.
template <class T>
inline constexpr std::size_t column_grain = simd::alignment / sizeof(T);

/// Arrays of n numbers that each chunk has: two sums, and the origin of distances.
inline constexpr std::size_t chunk_arrays = 3;

/// Calls f(rows, these arrays of the chunk) for each chunk.
template <class T, class F>
void for_chunks(std::size_t rows, std::size_t n, resources<T> use, const F& f) noexcept {
    detail::for_blocks(use.team, chunk_count(rows, n), 1, [=](parallel::block mine) LOCKSTEP_FLATTEN {
        const std::size_t high = chunk_rows(n);
        for (std::size_t chunk = mine.first; chunk < mine.last; ++chunk)
            f(parallel::block{chunk * high, std::min(rows, (chunk + 1) * high)},
              use.scratch.data() + chunk_arrays * n * chunk);
    });
}

/// Rows of so many arrays that are walked together, a few columns at a time, so that their sums stay in registers. No
/// more than half of a first-level cache.
template <class T>
[[nodiscard]] constexpr std::size_t tile_height(std::size_t n, std::size_t arrays) noexcept {
    const std::size_t row = sizeof(T) * std::max<std::size_t>(n, 1);
    if (row <= 256) return 2048 / row;
    return std::clamp<std::size_t>(16384 / (arrays * row), 1, std::max<std::size_t>(4, 4096 / row));
}

/// Asks for as much of the tile after this one as this part of it takes, in the order of memory: the hardware does not
/// foresee the walk, and fetches what is written late.
template <bool IsWritten = false, class T>
LOCKSTEP_FLATTEN inline void fetch_tile(const T* from, parallel::block tile, std::size_t n, std::size_t column,
                                        std::size_t columns) noexcept {
    const T* const next = from + tile.last * n + column * tile.size();
    for (std::size_t i = 0; i < columns * tile.size(); i += simd::alignment / sizeof(T))
        __builtin_prefetch(next + i, IsWritten ? 1 : 0, 3);
}

/// Calls f(rows of a tile, vectors, first column, how many vectors), until all the rows of a chunk are done.
template <class T, class F>
LOCKSTEP_FLATTEN inline void for_pieces(parallel::block rows, std::size_t n, std::size_t arrays, const F& f) noexcept {
    const std::size_t high = tile_height<T>(n, arrays);
    for (std::size_t first = rows.first; first < rows.last; first += high) {
        const parallel::block tile{first, std::min(rows.last, first + high)};
        for_channels<T>(n,
                        [&](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN { f(tile, part, c, count); });
    }
}

/// Whether normalised columns are stored past the caches. After the last four vectors of a row each goes down the rows
/// by itself, so that has to write whole lines.
template <class T>
[[nodiscard]] bool streams_columns(const T* to, std::size_t rows, std::size_t n) noexcept {
    constexpr std::size_t width = simd::width<T>;
    return simd::streams(to, rows * n, n) && (width * sizeof(T) == simd::alignment || n % (4 * width) == 0);
}

}  // namespace detail

// What follows normalised columns: forward(vectors, z, at) is y of z = (x - mean) scale + shift, gradient(vectors, x -
// mean, dy, c, at) the gradient with respect to z; column c, element `at`.

/// y = z.
struct unchanged {
    static auto forward(const auto&, const auto& z, std::size_t) noexcept { return z; }
    static auto gradient(const auto&, const auto&, const auto& dy, std::size_t, std::size_t) noexcept { return dy; }
};

/// y = max(z, 0). Backward computes z once more, with the bits of forward: cheaper than y from memory.
template <class T>
struct rectified {
    const T* scale;
    const T* shift;
    static auto forward(const auto&, const auto& z, std::size_t) noexcept { return detail::relu(z); }
    auto gradient(const auto& part, const auto& distance, const auto& dy, std::size_t c, std::size_t) const noexcept {
        return detail::relu_gradient(simd::fma(distance, part.load(scale + c), part.load(shift + c)), dy);
    }
};

/// y = max(other + z, 0).
template <class T>
struct rectified_sum {
    const T* other;
    auto forward(const auto& part, const auto& z, std::size_t at) const noexcept {
        return detail::relu(part.load(other + at) + z);
    }
};

/// The gradient of rectified_sum with respect to z and to `other`, which is written; dother may be dy.
template <class T>
struct rectified_sum_gradients {
    const T* y;
    T* dother;
    auto gradient(const auto& part, const auto&, const auto& dy, std::size_t, std::size_t at) const noexcept {
        const auto out = detail::relu_gradient(part.load(y + at), dy);
        part.store(dother + at, out);
        return out;
    }
};
/// The same of dy + more.
template <class T>
struct rectified_sum_both_gradients : rectified_sum_gradients<T> {
    const T* more;
    auto gradient(const auto& part, const auto& distance, const auto& dy, std::size_t c,
                  std::size_t at) const noexcept {
        return rectified_sum_gradients<T>::gradient(part, distance, dy + part.load(more + at), c, at);
    }
};

/// Elements of scratch of column_moments and column_gradients.
template <class T>
[[nodiscard]] constexpr std::size_t column_sums_scratch(std::size_t rows, std::size_t n) noexcept {
    return detail::chunk_arrays * n * detail::chunk_count(rows, n);
}

/// mean[j] and variance[j] (the mean squared distance from it) of column j of x, rows x n; zeros without rows. In a
/// chunk of P rows, distances d from an origin are summed: squares = sum of d^2 - (sum of d)^2 / P. Little cancels
/// where the origin is some deviations from the mean at most, wherever that lies: it is the median of the first, the
/// middle and the last row, so that no single number that lies far away becomes it. Chunks are joined with the formula
/// of Chan, Golub, LeVeque (1979). One pass over memory.
template <class T>
void column_moments(std::size_t rows, std::size_t n, const T* x, T* mean, T* variance, resources<T> use) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    using detail::unroll;
    detail::for_chunks(rows, n, use, [=](parallel::block chunk, T* out) LOCKSTEP_FLATTEN {
        T* const sums = out;
        T* const squares = out + n;
        T* const origin = out + 2 * n;
        simd::map(
            n,
            [](vector& to, const vector& a, const vector& b, const vector& c) {
                to = max(min(a, b), min(max(a, b), c));
            },
            origin, x + chunk.first * n, x + (chunk.first + chunk.last) / 2 * n, x + (chunk.last - 1) * n);
        std::fill_n(out, 2 * n, T{0});
        detail::for_pieces<T>(chunk, n, 1,
                              [=](parallel::block tile, const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
                                  vector middle[count];
                                  vector sum[count];
                                  vector square[count];
                                  unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                      middle[v] = part.load(origin + c + v * width);
                                      sum[v] = part.load(sums + c + v * width);
                                      square[v] = part.load(squares + c + v * width);
                                  });
                                  detail::fetch_tile(x, tile, n, c, count * width);
                                  const T* from = x + tile.first * n + c;
                                  for (std::size_t row = 0; row < tile.size(); ++row, from += n) {
                                      unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                          const vector distance = part.load(from + v * width) - middle[v];
                                          sum[v] = sum[v] + distance;
                                          square[v] = simd::fma(distance, distance, square[v]);
                                      });
                                  }
                                  unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                      part.store(sums + c + v * width, sum[v]);
                                      part.store(squares + c + v * width, square[v]);
                                  });
                              });
        simd::map(
            n,
            [share = vector(T{1} / static_cast<T>(chunk.size()))](const vector& first, vector& sum, vector& square) {
                const vector apart = sum * share;
                const vector left = square - apart * sum;
                sum = first + apart;
                // Rounding may leave less than nothing; a NaN stays.
                square = select(left < vector(T{0}), vector(T{0}), left);
            },
            origin, sums, squares);
    });
    parallel::for_blocks(use.team, n, detail::column_grain<T>, [&](parallel::block mine) {
        const std::size_t high = detail::chunk_rows(n);
        std::fill_n(mean + mine.first, mine.size(), T{0});
        std::fill_n(variance + mine.first, mine.size(), T{0});
        for (std::size_t seen = 0; seen < rows; seen += high) {
            const std::size_t more = std::min(high, rows - seen);
            const double part = static_cast<double>(more) / static_cast<double>(seen + more);
            const T* from = use.scratch.data() + detail::chunk_arrays * n * (seen / high) + mine.first;
            simd::map(
                mine.size(),
                [part = vector(static_cast<T>(part)), both = vector(static_cast<T>(part * static_cast<double>(seen)))](
                    const vector& middle, const vector& square, vector& all, vector& squares) {
                    const vector apart = middle - all;
                    all = simd::fma(apart, part, all);
                    squares = simd::fma(apart * apart, both, squares + square);
                },
                from, from + n, mean + mine.first, variance + mine.first);
        }
        if (rows > 0)
            simd::map(
                mine.size(),
                [share = vector(T{1} / static_cast<T>(rows))](vector& squares) { squares = squares * share; },
                variance + mine.first);
    });
}

/// z = (x - mean) scale + shift in each column, and y = then.forward(z). x and y are the same array or disjoint.
template <class T, class Then = unchanged>
void normalise_columns(std::size_t rows, std::size_t n, const T* x, const T* mean, const T* scale, const T* shift, T* y,
                       parallel::team team, Then then = {}) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    using detail::unroll;
    const bool streamed = y != x && detail::streams_columns(y, rows, n);
    const auto body = [=](parallel::block mine) LOCKSTEP_FLATTEN {
        detail::for_pieces<T>(
            mine, n, 2, [=](parallel::block tile, const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
                vector middle[count];
                vector factor[count];
                vector offset[count];
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    middle[v] = part.load(mean + c + v * width);
                    factor[v] = part.load(scale + c + v * width);
                    offset[v] = part.load(shift + c + v * width);
                });
                // Beside stores past the caches the hardware does not fetch what is read.
                if (streamed)
                    detail::fetch_tile(x, tile, n, c, count * width);
                else
                    detail::fetch_tile<true>(y, tile, n, c, count * width);
                std::size_t at = tile.first * n + c;
                for (std::size_t row = 0; row < tile.size(); ++row, at += n)
                    unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                        const std::size_t i = at + v * width;
                        detail::put(
                            part, streamed, y + i,
                            then.forward(part, simd::fma(part.load(x + i) - middle[v], factor[v], offset[v]), i));
                    });
            });
        if (streamed) simd::stream_end();
    };
    detail::for_blocks(team, rows, 16, body);
}

/// gradient[j] = sum of dz (x - mean[j]) inverse[j] and sum[j] = sum of dz in column j, with dz = then.gradient(dy):
/// the gradients of scale and shift of normalised columns. Chunks are added in ascending order; zeros without rows. One
/// pass over memory.
template <class T, class Then = unchanged>
void column_gradients(std::size_t rows, std::size_t n, const T* x, const T* dy, const T* mean, const T* inverse,
                      T* gradient, T* sum, resources<T> use, Then then = {}) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    using detail::unroll;
    detail::for_chunks(rows, n, use, [=](parallel::block chunk, T* out) LOCKSTEP_FLATTEN {
        T* const products = out;
        T* const plains = out + n;
        std::fill_n(out, 2 * n, T{0});
        detail::for_pieces<T>(
            chunk, n, 2, [=](parallel::block tile, const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
                vector middle[count];
                vector product[count];
                vector plain[count];
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    middle[v] = part.load(mean + c + v * width);
                    product[v] = part.load(products + c + v * width);
                    plain[v] = part.load(plains + c + v * width);
                });
                detail::fetch_tile(x, tile, n, c, count * width);
                detail::fetch_tile(dy, tile, n, c, count * width);
                std::size_t at = tile.first * n + c;
                for (std::size_t row = 0; row < tile.size(); ++row, at += n) {
                    unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                        const std::size_t i = at + v * width;
                        const vector distance = part.load(x + i) - middle[v];
                        const vector one = then.gradient(part, distance, part.load(dy + i), c + v * width, i);
                        plain[v] = plain[v] + one;
                        product[v] = simd::fma(one, distance, product[v]);
                    });
                }
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    part.store(products + c + v * width, product[v]);
                    part.store(plains + c + v * width, plain[v]);
                });
            });
        for (std::size_t c = 0; c < n; ++c) products[c] *= inverse[c];
    });
    parallel::for_blocks(use.team, n, detail::column_grain<T>, [&](parallel::block mine) {
        std::fill_n(gradient + mine.first, mine.size(), T{0});
        std::fill_n(sum + mine.first, mine.size(), T{0});
        for (std::size_t chunk = 0; chunk < detail::chunk_count(rows, n); ++chunk) {
            const T* from = use.scratch.data() + detail::chunk_arrays * n * chunk;
            for (std::size_t c = mine.first; c < mine.last; ++c) {
                gradient[c] += from[c];
                sum[c] += from[n + c];
            }
        }
    });
}

/// dx = (dz - share_of_sum - (x - mean) share_of_gradient) scale in each column, with dz = then.gradient(dy): the
/// gradient of normalised columns whose mean and variance follow x, with scale = gamma inverse, share_of_sum = sum /
/// rows and share_of_gradient = inverse gradient / rows. dx may be dy.
template <class T, class Then = unchanged>
void normalise_columns_backward(std::size_t rows, std::size_t n, const T* x, const T* dy, const T* mean, const T* scale,
                                const T* share_of_sum, const T* share_of_gradient, T* dx, parallel::team team,
                                Then then = {}) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    using detail::unroll;
    const bool streamed = dx != dy && detail::streams_columns(dx, rows, n);
    const auto body = [=](parallel::block mine) LOCKSTEP_FLATTEN {
        detail::for_pieces<T>(
            mine, n, 3, [=](parallel::block tile, const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
                vector middle[count];
                vector factor[count];
                vector sum[count];
                vector gradient[count];
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    middle[v] = part.load(mean + c + v * width);
                    factor[v] = part.load(scale + c + v * width);
                    sum[v] = part.load(share_of_sum + c + v * width);
                    gradient[v] = part.load(share_of_gradient + c + v * width);
                });
                if (streamed) {
                    detail::fetch_tile(x, tile, n, c, count * width);
                    detail::fetch_tile(dy, tile, n, c, count * width);
                } else {
                    detail::fetch_tile<true>(dx, tile, n, c, count * width);
                }
                std::size_t at = tile.first * n + c;
                for (std::size_t row = 0; row < tile.size(); ++row, at += n)
                    unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                        const std::size_t i = at + v * width;
                        const vector distance = part.load(x + i) - middle[v];
                        const vector centred =
                            then.gradient(part, distance, part.load(dy + i), c + v * width, i) - sum[v];
                        detail::put(part, streamed, dx + i, simd::fma(-distance, gradient[v], centred) * factor[v]);
                    });
            });
        if (streamed) simd::stream_end();
    };
    detail::for_blocks(team, rows, 16, body);
}

LOCKSTEP_TEMPLATE(column_moments<float>);
LOCKSTEP_TEMPLATE(normalise_columns<float>);
LOCKSTEP_TEMPLATE(normalise_columns<float, rectified<float>>);
LOCKSTEP_TEMPLATE(normalise_columns<float, rectified_sum<float>>);
LOCKSTEP_TEMPLATE(column_gradients<float>);
LOCKSTEP_TEMPLATE(column_gradients<float, rectified<float>>);
LOCKSTEP_TEMPLATE(column_gradients<float, rectified_sum_gradients<float>>);
LOCKSTEP_TEMPLATE(column_gradients<float, rectified_sum_both_gradients<float>>);
LOCKSTEP_TEMPLATE(normalise_columns_backward<float>);
LOCKSTEP_TEMPLATE(normalise_columns_backward<float, rectified<float>>);

}  // namespace lockstep::kernels
