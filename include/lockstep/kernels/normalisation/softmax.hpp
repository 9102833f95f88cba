// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Softmax of rows, alone and with the cross-entropy against class numbers.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/exp.hpp"
#include "lockstep/simd/log.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/simd/part.hpp"
#include "lockstep/simd/transpose.hpp"

namespace lockstep::kernels {

namespace detail {

/// Maximum of a row (numbers only) and sum of exp(x - maximum): vector element v adds columns v, v + width, ..; then
/// the elements in order.
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
        const batch remainder = select(inside, simd::load_first(x + at, rest), batch(largest));
        most = max(most, remainder);
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
            // exp(0) there: minus infinity would raise a floating-point exception.
            const batch value = power(select(inside, remainder, batch(largest)));
            if (out) simd::store_first(out + at, value, rest);
            // What lies after the row adds nothing, even if all of the row is minus infinity.
            total = total + select(inside, value, batch(T{0}));
        }
        simd::store(elements.data(), total);
        for (const T element : elements) sum += element;
    }
};

/// As many short rows as a vector has elements, transposed: each column is a vector. Sums have the order of
/// softmax_row.
class softmax_rows {
public:
    using batch = simd::batch<float>;
    static constexpr std::size_t width = simd::width<float>;

    batch largest;
    batch sum;

    [[nodiscard]] static constexpr bool fit(std::size_t rows, std::size_t n) noexcept {
        return rows >= width && n >= 4 && n <= 2 * width;
    }

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
    /// Asks for the rows after the next ones and for the place of their results, unless that is null: what is computed
    /// here is so much that the processor does not see so far.
    static void fetch(std::size_t n, const float* x, float* y) noexcept {
        for (std::size_t i = 2 * width * n; i < 3 * width * n; i += simd::alignment / sizeof(float)) {
            __builtin_prefetch(x + i, 0, 3);
            if (y) __builtin_prefetch(y + i, 1, 3);
        }
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

/// Losses of rows: first what stands beside the logarithm of a row's sum, then, of several rows at once, all of it.
struct row_losses {
    static constexpr std::size_t most = 512;
    std::array<double, most> sums;
    std::array<double, most> all;

    void add_logarithms(parallel::block rows) noexcept {
        simd::map(
            rows.size(),
            [](const simd::batch<double>& sum, simd::batch<double>& loss) { loss = simd::log_above_one(sum) + loss; },
            static_cast<const double*>(sums.data()) + rows.first, all.data() + rows.first);
    }
};

/// What the rows of a cross-entropy with class numbers have in common.
template <class T>
class cross_entropy {
public:
    cross_entropy(std::size_t n, T scale, double smoothing) noexcept
        : n_{n},
          smoothing_{smoothing},
          scale_{scale},
          everywhere_{static_cast<T>(static_cast<double>(scale) * smoothing / static_cast<double>(n))},
          at_label_{smoothing == 0 ? scale : static_cast<T>(static_cast<double>(scale) * (1 - smoothing))} {}

    /// Losses of `rows`, and dy where it is not null; it may be x: what is needed of a row is read first.
    void run(parallel::block rows, const T* x, const std::int32_t* labels, T* dy, row_losses& losses) const noexcept {
        std::size_t row = rows.first;
        std::size_t done = row;
        if constexpr (std::is_same_v<T, float>)
            for (; softmax_rows::fit(rows.last - row, n_); row += width) {
                several_rows(row, x, labels, dy, losses);
                // Of the rows before: what these have stored is still on its way into the cache.
                losses.add_logarithms({done, row});
                done = row;
            }
        for (; row < rows.last; ++row) one_row(row, x, labels, dy, losses);
        losses.add_logarithms({done, rows.last});
    }

private:
    using vector = simd::batch<T>;
    static constexpr std::size_t width = simd::width<T>;
    static constexpr T nan = std::numeric_limits<T>::quiet_NaN();

    std::size_t n_;
    double smoothing_;
    T scale_;
    T everywhere_;
    T at_label_;

    [[nodiscard]] bool knows(std::int32_t label) const noexcept { return static_cast<std::size_t>(label) < n_; }
    [[nodiscard]] T target(const T* row, std::int32_t label) const noexcept { return knows(label) ? row[label] : nan; }
    [[nodiscard]] double mean(const T* row) const noexcept { return smoothing_ == 0 ? 0 : row_mean(n_, row); }
    /// The loss of a row without the logarithm of its sum.
    [[nodiscard]] double beside(T largest, T at_target, double at_mean) const noexcept {
        const double below = static_cast<double>(largest) - static_cast<double>(at_target);
        return smoothing_ == 0 ? below
                               : (1 - smoothing_) * below + smoothing_ * (static_cast<double>(largest) - at_mean);
    }
    void several_rows(std::size_t row, const T* x, const std::int32_t* labels, T* dy,
                      row_losses& losses) const noexcept {
        softmax_rows::fetch(n_, x + row * n_, dy ? dy + row * n_ : nullptr);
        const softmax_rows done{n_, x + row * n_};
        std::array<T, width> largest, sums;
        simd::store(largest.data(), done.largest);
        simd::store(sums.data(), done.sum);
        for (std::size_t r = 0; r < width; ++r) {
            const T* const in = x + (row + r) * n_;
            losses.all[row + r] = beside(largest[r], target(in, labels[row + r]), mean(in));
            losses.sums[row + r] = static_cast<double>(sums[r]);
        }
        if (!dy) return;
        const vector label = xsimd::to_float(simd::batch<std::int32_t>::load_unaligned(labels + row));
        const auto known = label >= vector(T{0}) && label < vector(static_cast<T>(n_));
        const vector share = select(known, vector(scale_) / done.sum, vector(nan));
        done.write(n_, dy + row * n_, [&](const vector& value, std::size_t column) {
            const auto hit = label == vector(static_cast<T>(column));
            return value * share - vector(everywhere_) - select(hit, vector(at_label_), vector(T{0}));
        });
    }
    void one_row(std::size_t row, const T* x, const std::int32_t* labels, T* dy, row_losses& losses) const noexcept {
        const T* const in = x + row * n_;
        T* const out = dy ? dy + row * n_ : nullptr;
        const std::int32_t label = labels[row];
        const T at_target = target(in, label);
        const double at_mean = mean(in);
        const softmax_row<T> done{n_, in, out};
        losses.all[row] = beside(done.largest, at_target, at_mean);
        losses.sums[row] = static_cast<double>(done.sum);
        if (!out) return;
        simd::map(
            n_,
            [share = vector(knows(label) ? scale_ / done.sum : nan), less = vector(everywhere_)](vector& value) {
                value = value * share - less;
            },
            out);
        if (knows(label)) out[label] -= at_label_;
    }
};

}  // namespace detail

/// y = exp(x) / sum exp(x) for each of `rows` rows of n. y may be x. A NaN or an infinity of plus sign makes its row
/// NaN.
template <class T>
void softmax(std::size_t rows, std::size_t n, const T* x, T* y, parallel::team team) noexcept {
    parallel::for_blocks(team, rows, 1, [&](parallel::block mine) {
        std::size_t row = mine.first;
        if constexpr (std::is_same_v<T, float>)
            for (; detail::softmax_rows::fit(mine.last - row, n); row += detail::softmax_rows::width) {
                detail::softmax_rows::fetch(n, x + row * n, y + row * n);
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

/// Sum over the rows, in ascending order, of -sum_i t_i log softmax(x)[i], where t is 1 - smoothing at the label and
/// smoothing / n is added everywhere; dy = scale (softmax(x) - t), or dy is null. dy may be x. x is rows x n, labels
/// are in 0 .. n-1: any other makes its row NaN, as a NaN in the row does.
template <class T>
[[nodiscard]] double softmax_cross_entropy_rows(std::size_t rows, std::size_t n, const T* x, const std::int32_t* labels,
                                                T scale, T* dy, parallel::team team, double smoothing = 0) noexcept {
    const detail::cross_entropy<T> of{n, scale, smoothing};
    detail::row_losses losses;
    double sum = 0;
    for (std::size_t first = 0; first < rows; first += losses.most) {
        const std::size_t count = std::min(losses.most, rows - first);
        parallel::for_blocks(team, count, 1, [&](parallel::block mine) {
            of.run(mine, x + first * n, labels + first, dy ? dy + first * n : nullptr, losses);
        });
        for (std::size_t i = 0; i < count; ++i) sum += losses.all[i];
    }
    return sum;
}

LOCKSTEP_TEMPLATE(softmax<float>);
LOCKSTEP_TEMPLATE(softmax_cross_entropy_rows<float>);

}  // namespace lockstep::kernels
