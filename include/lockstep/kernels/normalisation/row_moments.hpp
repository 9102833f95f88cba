// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Normalisation of rows: each by its own mean and variance, with a scale and a shift for each column; what layer
// normalisation runs.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::kernels {

namespace detail {

/// Sums of term(vectors, i)[s] over a row: four vectors of sums side by side, joined in pairs, then their elements in
/// order. The order depends on n alone.
template <std::size_t Sums, class T, class F>
LOCKSTEP_FLATTEN inline std::array<T, Sums> row_sums(std::size_t n, F&& term) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    vector sums[4][Sums];
    for (auto& one : sums)
        for (auto& sum : one) sum = vector(T{0});
    std::size_t i = 0;
    for (; i + 4 * width <= n; i += 4 * width)
        unroll<4>([&](auto v) LOCKSTEP_FLATTEN {
            const auto more = term(channel_vector<T>{}, i + v * width);
            unroll<Sums>([&](auto s) LOCKSTEP_FLATTEN { sums[v][s] = sums[v][s] + more[s]; });
        });
    for (; i + width <= n; i += width) {
        const auto more = term(channel_vector<T>{}, i);
        unroll<Sums>([&](auto s) LOCKSTEP_FLATTEN { sums[0][s] = sums[0][s] + more[s]; });
    }
    if (i < n) {
        const auto more = term(channel_part<T>{n - i}, i);
        const auto inside = counted<T>() < vector(static_cast<T>(n - i));
        unroll<Sums>([&](auto s) LOCKSTEP_FLATTEN { sums[0][s] = sums[0][s] + select(inside, more[s], vector(T{0})); });
    }
    std::array<T, Sums> out{};
    for (std::size_t s = 0; s < Sums; ++s) {
        std::array<T, width> elements;
        simd::store(elements.data(), (sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]));
        for (const T element : elements) out[s] += element;
    }
    return out;
}

}  // namespace detail

/// Mean and inverse deviation of a row.
template <class T>
struct row_moments {
    T mean;
    T inverse;  ///< 1 / sqrt(variance + epsilon)
};

/// y = (x - mean) inverse scale + shift for each of `rows` rows of n, where mean and variance are those of the row. The
/// mean comes of the distances from the row's first number, which are sqrt(n) deviations at most, so that it is right
/// far from 0, too; the squares are summed when it is known. A row whose variance is infinite becomes NaN. moments[row]
/// receives them, or is null. x and y are the same array or disjoint. One pass over memory: while a row is in cache,
/// the next one and the place of its result come.
template <class T>
void normalise_rows(std::size_t rows, std::size_t n, const T* x, const T* scale, const T* shift, double epsilon, T* y,
                    row_moments<T>* moments, parallel::team team) noexcept {
    using vector = simd::batch<T>;
    const bool streamed = y != x && simd::streams(y, rows * n, n);
    detail::for_blocks(team, rows, 1, [=](parallel::block mine) LOCKSTEP_FLATTEN {
        for (std::size_t row = mine.first; row < mine.last; ++row) {
            const T* in = x + row * n;
            T* out = y + row * n;
            const vector origin(in[0]);
            const T mean = in[0] + detail::row_sums<1, T>(n,
                                                          [&](const auto part, std::size_t i) LOCKSTEP_FLATTEN {
                                                              if (!streamed) __builtin_prefetch(out + i, 1, 3);
                                                              return std::array{part.load(in + i) - origin};
                                                          })[0] /
                                       static_cast<T>(n);
            const vector middle(mean);
            const T squares = detail::row_sums<1, T>(n, [&](const auto part, std::size_t i) LOCKSTEP_FLATTEN {
                __builtin_prefetch(in + n + i, 0, 3);
                const vector distance = part.load(in + i) - middle;
                return std::array{distance * distance};
            })[0];
            const T variance = squares / static_cast<T>(n);
            // An infinite one must show: x / infinity would be 0, and so would all gradients.
            const T inverse = T{1} / std::sqrt(variance + static_cast<T>(epsilon)) + (variance - variance);
            if (moments) moments[row] = {mean, inverse};
            simd::map_to(
                n, streamed,
                [middle, times = vector(inverse)](const vector& from, const vector& factor, const vector& term) {
                    return simd::fma((from - middle) * times, factor, term);
                },
                out, in, scale, shift);
        }
        if (streamed) simd::stream_end();
    });
}

/// gradient = sum over the rows, in ascending order, of dy (x - mean) inverse, and sum = sum of dy, in each column;
/// zeros without rows.
template <class T>
void normalise_rows_gradients(std::size_t rows, std::size_t n, const T* x, const T* dy, const row_moments<T>* moments,
                              T* gradient, T* sum, parallel::team team) noexcept {
    using vector = simd::batch<T>;
    detail::for_blocks(team, n, simd::alignment / sizeof(T), [=](parallel::block mine) LOCKSTEP_FLATTEN {
        std::fill_n(gradient + mine.first, mine.size(), T{0});
        std::fill_n(sum + mine.first, mine.size(), T{0});
        for (std::size_t row = 0; row < rows; ++row)
            simd::map(
                mine.size(),
                [middle = vector(moments[row].mean), times = vector(moments[row].inverse)](
                    const vector& from, const vector& one, vector& product, vector& plain) {
                    product = simd::fma(one, (from - middle) * times, product);
                    plain = plain + one;
                },
                x + row * n + mine.first, dy + row * n + mine.first, gradient + mine.first, sum + mine.first);
    });
}

/// dx = inverse (g - mean of g - h mean of g h) with g = dy scale and h = (x - mean) inverse, in each row. dx may be
/// dy.
template <class T>
void normalise_rows_backward(std::size_t rows, std::size_t n, const T* x, const T* dy, const T* scale,
                             const row_moments<T>* moments, T* dx, parallel::team team) noexcept {
    using vector = simd::batch<T>;
    const bool streamed = dx != dy && simd::streams(dx, rows * n, n);
    detail::for_blocks(team, rows, 1, [=](parallel::block mine) LOCKSTEP_FLATTEN {
        for (std::size_t row = mine.first; row < mine.last; ++row) {
            const T* in = x + row * n;
            const T* gradients = dy + row * n;
            const vector middle(moments[row].mean);
            const vector times(moments[row].inverse);
            const auto sums = detail::row_sums<2, T>(n, [&](const auto part, std::size_t i) LOCKSTEP_FLATTEN {
                const vector g = part.load(gradients + i) * part.load(scale + i);
                return std::array{g, g * ((part.load(in + i) - middle) * times)};
            });
            const vector mean(sums[0] / static_cast<T>(n));
            const vector along(-sums[1] / static_cast<T>(n));
            simd::map_to(
                n, streamed,
                [&](const vector& from, const vector& one, const vector& factor) {
                    return simd::fma((from - middle) * times, along, one * factor - mean) * times;
                },
                dx + row * n, in, gradients, scale);
        }
        if (streamed) simd::stream_end();
    });
}

LOCKSTEP_TEMPLATE(normalise_rows<float>);
LOCKSTEP_TEMPLATE(normalise_rows_gradients<float>);
LOCKSTEP_TEMPLATE(normalise_rows_backward<float>);

}  // namespace lockstep::kernels
