// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Softmax of rows, alone and with the cross-entropy against class numbers.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lockstep/kernels/channels.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels {

namespace detail {

/// Maximum of a row (numbers only) and sum of exp(x - maximum): vector element v adds columns v, v + width, ..; then the elements in order.
template <class T>
struct softmax_row {
    T largest = -std::numeric_limits<T>::infinity();
    T sum = T{0};

    /// out receives exp(x - largest) or is null; it may be x.
    softmax_row(std::size_t n, const T* x, T* out) noexcept {
        using batch = simd::batch<T>;
        constexpr std::size_t width = simd::width<T>;
        batch most(largest);
        std::size_t at = 0;
        for (; at + width <= n; at += width) most = max(most, simd::load(x + at));
        // In registers: short rows are little more than this part.
        const std::size_t rest = n - at;
        const auto inside = counted<T>() < batch(static_cast<T>(rest));
        const batch tail = select(inside, simd::load_first(x + at, rest), batch(largest));
        most = max(most, tail);
        std::array<T, width> elements;
        simd::store(elements.data(), most);
        largest = *std::max_element(elements.begin(), elements.end());

        batch total(T{0});
        const auto power = [shift = batch(largest)](const batch& value) {
            const batch difference = value - shift;
            return select(difference == difference, exp(difference), difference);
        };
        for (at = 0; at + width <= n; at += width) {
            const batch value = power(simd::load(x + at));
            total = total + value;
            if (out) simd::store(out + at, value);
        }
        if (rest > 0) {
            const batch value = power(tail);
            if (out) simd::store_first(out + at, value, rest);
            // What lies behind the row adds nothing, even if all of the row is minus infinity.
            total = total + select(inside, value, batch(T{0}));
        }
        simd::store(elements.data(), total);
        for (const T element : elements) sum += element;
    }
};

/// In double, four sums side by side.
template <class T>
[[nodiscard]] inline double row_mean(std::size_t n, const T* x) noexcept {
    std::array<double, 4> sums{};
    for (std::size_t i = 0; i < n; ++i) sums[i % sums.size()] += static_cast<double>(x[i]);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) / static_cast<double>(n);
}

}  // namespace detail

/// y = exp(x) / sum exp(x) for each of `rows` rows of n. y may be x. A NaN or an infinity of plus sign makes its row NaN.
template <class T>
void softmax(std::size_t rows, std::size_t n, const T* x, T* y, parallel::team team) noexcept {
    parallel::for_blocks(team, rows, 1, [&](parallel::block mine) {
        for (std::size_t row = mine.first; row < mine.last; ++row) {
            T* out = y + row * n;
            const detail::softmax_row<T> done{n, x + row * n, out};
            const T share = T{1} / done.sum;
            for (std::size_t i = 0; i < n; ++i) out[i] *= share;
        }
    });
}

/// Sum over the rows, in ascending order, of -sum_i t_i log softmax(x)[i], where t is 1 - smoothing at the label and smoothing / n is added
/// everywhere; dy = scale (softmax(x) - t), or dy is null. dy may be x. x is rows x n, labels are in 0 .. n-1: any other makes its row NaN, as
/// a NaN in the row does.
template <class T>
[[nodiscard]] double softmax_cross_entropy_rows(std::size_t rows, std::size_t n, const T* x, const std::int32_t* labels, T scale, T* dy,
                                                parallel::team team, double smoothing = 0) noexcept {
    constexpr std::size_t run = 512;
    std::array<double, run> losses;
    double sum = 0;
    for (std::size_t first = 0; first < rows; first += run) {
        const std::size_t count = std::min(run, rows - first);
        parallel::for_blocks(team, count, 1, [&](parallel::block mine) {
            for (std::size_t i = mine.first; i < mine.last; ++i) {
                const T* in = x + (first + i) * n;
                T* out = dy ? dy + (first + i) * n : nullptr;
                const auto label = static_cast<std::size_t>(labels[first + i]);
                const T target = label < n ? in[label] : std::numeric_limits<T>::quiet_NaN();
                const double mean = smoothing == 0 ? 0 : detail::row_mean(n, in);
                const detail::softmax_row<T> done{n, in, out};
                double below = static_cast<double>(done.largest) - static_cast<double>(target);
                if (smoothing != 0) below = (1 - smoothing) * below + smoothing * (static_cast<double>(done.largest) - mean);
                losses[i] = std::log(static_cast<double>(done.sum)) + below;
                if (!out) continue;
                const T share = label < n ? scale / done.sum : std::numeric_limits<T>::quiet_NaN();
                const T everywhere = static_cast<T>(static_cast<double>(scale) * smoothing / static_cast<double>(n));
                if (smoothing == 0)
                    for (std::size_t c = 0; c < n; ++c) out[c] *= share;
                else
                    for (std::size_t c = 0; c < n; ++c) out[c] = out[c] * share - everywhere;
                if (label < n) out[label] -= smoothing == 0 ? scale : static_cast<T>(static_cast<double>(scale) * (1 - smoothing));
            }
        });
        for (std::size_t i = 0; i < count; ++i) sum += losses[i];
    }
    return sum;
}

}  // namespace lockstep::kernels
