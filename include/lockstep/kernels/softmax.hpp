// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Softmax of rows, alone and with the cross-entropy against class numbers.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/kernels/channels.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/exp.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/simd/part.hpp"
#include "lockstep/simd/transpose.hpp"

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
        const auto power = [shift = batch(largest)](const batch& value) { return simd::exp_below_zero(value - shift); };
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

/// As many short rows as a vector has elements, transposed: each column is a vector. Sums have the order of softmax_row.
class softmax_rows {
public:
    using batch = simd::batch<float>;
    static constexpr std::size_t width = simd::width<float>;

    batch largest;
    batch sum;

    [[nodiscard]] static constexpr bool fit(std::size_t rows, std::size_t n) noexcept { return rows >= width && n >= 4 && n <= 2 * width; }

    softmax_rows(std::size_t n, const float* x) noexcept {
        // Not the members: to the compiler they might change with every column that is stored.
        batch most(-std::numeric_limits<float>::infinity());
        batch total(0.0F);
        batch part[4];
        // The last four columns overlap those before them.
        for (std::size_t c = 0; c < n; c += 4) {
            const std::size_t first = std::min(c, n - 4);
            simd::load_columns(x + first, n, part);
            for (std::size_t j = 0; j < 4; ++j) {
                simd::store(columns_ + (first + j) * width, part[j]);
                most = max(most, part[j]);
            }
        }
        for (std::size_t c = 0; c < std::min(n, width); ++c) {
            batch value = simd::exp_below_zero(at(c) - most);
            simd::store(columns_ + c * width, value);
            if (c + width < n) {
                const batch second = simd::exp_below_zero(at(c + width) - most);
                simd::store(columns_ + (c + width) * width, second);
                value = value + second;
            }
            total = total + value;
        }
        largest = most;
        sum = total;
    }
    /// y(row, column) = f(exp(x - largest), column)
    template <class F>
    void write(std::size_t n, float* y, F&& f) const noexcept {
        batch part[4];
        for (std::size_t c = 0; c < n; c += 4) {
            const std::size_t first = std::min(c, n - 4);
            for (std::size_t j = 0; j < 4; ++j) part[j] = f(at(first + j), first + j);
            simd::store_columns(y + first, n, part);
        }
    }

private:
    [[nodiscard]] batch at(std::size_t column) const noexcept { return simd::load(columns_ + column * width); }
    alignas(simd::alignment) float columns_[2 * width * width];
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
        std::size_t row = mine.first;
        if constexpr (std::is_same_v<T, float>)
            for (; detail::softmax_rows::fit(mine.last - row, n); row += detail::softmax_rows::width) {
                const detail::softmax_rows done{n, x + row * n};
                const simd::batch<T> share = simd::batch<T>(T{1}) / done.sum;
                done.write(n, y + row * n, [&](const simd::batch<T>& value, std::size_t) { return value * share; });
            }
        for (; row < mine.last; ++row) {
            T* out = y + row * n;
            const detail::softmax_row<T> done{n, x + row * n, out};
            simd::map(
                n, [share = simd::batch<T>(T{1} / done.sum)](simd::batch<T>& value) { value = value * share; }, out);
        }
    });
}

/// Sum over the rows, in ascending order, of -sum_i t_i log softmax(x)[i], where t is 1 - smoothing at the label and smoothing / n is added
/// everywhere; dy = scale (softmax(x) - t), or dy is null. dy may be x. x is rows x n, labels are in 0 .. n-1: any other makes its row NaN, as
/// a NaN in the row does.
template <class T>
[[nodiscard]] double softmax_cross_entropy_rows(std::size_t rows, std::size_t n, const T* x, const std::int32_t* labels, T scale, T* dy,
                                                parallel::team team, double smoothing = 0) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t run = 512;
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    const T everywhere = static_cast<T>(static_cast<double>(scale) * smoothing / static_cast<double>(n));
    const T at_label = smoothing == 0 ? scale : static_cast<T>(static_cast<double>(scale) * (1 - smoothing));
    std::array<double, run> losses;
    double sum = 0;
    for (std::size_t first = 0; first < rows; first += run) {
        const std::size_t count = std::min(run, rows - first);
        // dy may be x: what is needed of a row is read first.
        const auto target = [&](std::size_t row) {
            const auto label = static_cast<std::size_t>(labels[row]);
            return label < n ? x[row * n + label] : nan;
        };
        const auto mean = [&](std::size_t row) { return smoothing == 0 ? 0 : detail::row_mean(n, x + row * n); };
        const auto loss = [&](T at_target, double at_mean, T largest, T total) {
            double below = static_cast<double>(largest) - static_cast<double>(at_target);
            if (smoothing != 0) below = (1 - smoothing) * below + smoothing * (static_cast<double>(largest) - at_mean);
            return std::log(static_cast<double>(total)) + below;
        };
        parallel::for_blocks(team, count, 1, [&](parallel::block mine) {
            std::size_t i = mine.first;
            if constexpr (std::is_same_v<T, float>)
                for (constexpr std::size_t width = simd::width<T>; detail::softmax_rows::fit(mine.last - i, n); i += width) {
                    const detail::softmax_rows done{n, x + (first + i) * n};
                    std::array<T, width> largest, sums;
                    simd::store(largest.data(), done.largest);
                    simd::store(sums.data(), done.sum);
                    for (std::size_t r = 0; r < width; ++r)
                        losses[i + r] = loss(target(first + i + r), mean(first + i + r), largest[r], sums[r]);
                    if (!dy) continue;
                    const vector label = xsimd::to_float(simd::batch<std::int32_t>::load_unaligned(labels + first + i));
                    const auto known = label >= vector(T{0}) && label < vector(static_cast<T>(n));
                    const vector share = select(known, vector(scale) / done.sum, vector(nan));
                    done.write(n, dy + (first + i) * n, [&](const vector& value, std::size_t column) {
                        const auto hit = label == vector(static_cast<T>(column));
                        return value * share - vector(everywhere) - select(hit, vector(at_label), vector(T{0}));
                    });
                }
            for (; i < mine.last; ++i) {
                T* out = dy ? dy + (first + i) * n : nullptr;
                const auto label = static_cast<std::size_t>(labels[first + i]);
                const T at_target = target(first + i);
                const double at_mean = mean(first + i);
                const detail::softmax_row<T> done{n, x + (first + i) * n, out};
                losses[i] = loss(at_target, at_mean, done.largest, done.sum);
                if (!out) continue;
                simd::map(
                    n,
                    [share = vector(label < n ? scale / done.sum : nan), less = vector(everywhere)](vector& value) {
                        value = value * share - less;
                    },
                    out);
                if (label < n) out[label] -= at_label;
            }
        });
        for (std::size_t i = 0; i < count; ++i) sum += losses[i];
    }
    return sum;
}

LOCKSTEP_TEMPLATE(softmax<float>);
LOCKSTEP_TEMPLATE(softmax_cross_entropy_rows<float>);

}  // namespace lockstep::kernels
