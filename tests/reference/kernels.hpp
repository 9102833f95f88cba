// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The naive versions of the kernels, with sums in double precision: what the fast ones are tested against.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::kernels::reference {

/// C = op(A) op(B) + bias.
template <class T>
void gemm(transpose ta, transpose tb, std::size_t m, std::size_t n, std::size_t k, const T* a, std::size_t lda,
          const T* b, std::size_t ldb, double* c, std::size_t ldc, const T* bias) {
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            double sum = bias ? static_cast<double>(bias[j]) : 0.0;
            for (std::size_t p = 0; p < k; ++p)
                sum += static_cast<double>(ta == transpose::no ? a[i * lda + p] : a[p * lda + i]) *
                       static_cast<double>(tb == transpose::no ? b[p * ldb + j] : b[j * ldb + p]);
            c[i * ldc + j] = sum;
        }
}

/// sums[j] = sum of column j.
template <class T>
void column_sums(std::size_t rows, std::size_t n, const T* x, std::size_t ld, double* sums) {
    std::fill_n(sums, n, 0.0);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < n; ++j) sums[j] += static_cast<double>(x[r * ld + j]);
}

/// Calls f(output pixel, kernel position, input pixel) for every position of every window that lies inside its image.
template <class Geometry, class F>
void for_taps(const Geometry& g, std::size_t batch, F&& f) {
    std::size_t distance_rows = 1, distance_columns = 1;
    if constexpr (requires { g.dilation_rows; }) {
        distance_rows = g.dilation_rows;
        distance_columns = g.dilation_columns;
    }
    for (std::size_t s = 0; s < batch; ++s)
        for (std::size_t r = 0; r < g.out_rows(); ++r)
            for (std::size_t c = 0; c < g.out_columns(); ++c)
                for (std::size_t kr = 0; kr < g.kernel_rows; ++kr)
                    for (std::size_t kc = 0; kc < g.kernel_columns; ++kc) {
                        const std::size_t row = r * g.stride_rows + kr * distance_rows;
                        const std::size_t column = c * g.stride_columns + kc * distance_columns;
                        if (row < g.pad_top || row >= g.rows + g.pad_top || column < g.pad_left ||
                            column >= g.columns + g.pad_left)
                            continue;
                        f((s * g.out_rows() + r) * g.out_columns() + c, kr * g.kernel_columns + kc,
                          (s * g.rows + row - g.pad_top) * g.columns + column - g.pad_left);
                    }
}

/// Calls f(channel, filter, weight of the first kernel position) for every pair of a group.
template <class F>
void for_pairs(const convolution& g, F&& f) {
    for (std::size_t filter = 0; filter < g.filters; ++filter)
        for (std::size_t c = 0; c < g.group_channels(); ++c)
            f(filter / g.group_filters() * g.group_channels() + c, filter, c * g.filters + filter);
}

template <class T>
void convolution_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, double* y) {
    for (std::size_t i = 0; i < batch * g.out_size(); ++i) y[i] = bias ? static_cast<double>(bias[i % g.filters]) : 0.0;
    for_taps(g, batch, [&](std::size_t out, std::size_t tap, std::size_t in) {
        for_pairs(g, [&](std::size_t c, std::size_t f, std::size_t weight) {
            y[out * g.filters + f] += static_cast<double>(x[in * g.channels + c]) *
                                      static_cast<double>(w[tap * g.group_channels() * g.filters + weight]);
        });
    });
}

template <class T>
void convolution_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, double* dx) {
    std::fill_n(dx, batch * g.in_size(), 0.0);
    for_taps(g, batch, [&](std::size_t out, std::size_t tap, std::size_t in) {
        for_pairs(g, [&](std::size_t c, std::size_t f, std::size_t weight) {
            dx[in * g.channels + c] += static_cast<double>(dy[out * g.filters + f]) *
                                       static_cast<double>(w[tap * g.group_channels() * g.filters + weight]);
        });
    });
}

template <class T>
void convolution_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, double* dw,
                                  double* dbias) {
    std::fill_n(dw, g.weight_count(), 0.0);
    for_taps(g, batch, [&](std::size_t out, std::size_t tap, std::size_t in) {
        for_pairs(g, [&](std::size_t c, std::size_t f, std::size_t weight) {
            dw[tap * g.group_channels() * g.filters + weight] +=
                static_cast<double>(x[in * g.channels + c]) * static_cast<double>(dy[out * g.filters + f]);
        });
    });
    if (dbias) reference::column_sums(batch * g.out_rows() * g.out_columns(), g.filters, dy, g.filters, dbias);
}

/// Maxima and the index in the window of each; 0 and 255 where a window has nothing inside.
template <class T>
void max_pool_forward(const pooling& g, std::size_t batch, const T* x, double* y, std::uint8_t* which) {
    std::fill_n(y, batch * g.out_size(), 0.0);
    std::fill_n(which, batch * g.out_size(), std::uint8_t{255});
    for_taps(g, batch, [&](std::size_t out, std::size_t tap, std::size_t in) {
        for (std::size_t c = 0; c < g.channels; ++c) {
            const auto value = static_cast<double>(x[in * g.channels + c]);
            double& best = y[out * g.channels + c];
            std::uint8_t& index = which[out * g.channels + c];
            if (index != 255 && (std::isnan(best) || value <= best)) continue;
            best = value;
            index = static_cast<std::uint8_t>(tap);
        }
    });
}

template <class T>
void max_pool_backward(const pooling& g, std::size_t batch, const T* dy, const std::uint8_t* which, double* dx) {
    std::fill_n(dx, batch * g.in_size(), 0.0);
    for_taps(g, batch, [&](std::size_t out, std::size_t tap, std::size_t in) {
        for (std::size_t c = 0; c < g.channels; ++c)
            if (which[out * g.channels + c] == tap)
                dx[in * g.channels + c] += static_cast<double>(dy[out * g.channels + c]);
    });
}

/// Positions inside of the image for each output pixel of one sample.
inline std::vector<double> window_sizes(const pooling& g) {
    std::vector<double> sizes(g.out_rows() * g.out_columns());
    for_taps(g, 1, [&](std::size_t out, std::size_t, std::size_t) { sizes[out] += 1; });
    return sizes;
}

template <class T>
void mean_pool_forward(const pooling& g, std::size_t batch, const T* x, double* y) {
    const std::vector<double> sizes = window_sizes(g);
    std::fill_n(y, batch * g.out_size(), 0.0);
    for_taps(g, batch, [&](std::size_t out, std::size_t, std::size_t in) {
        for (std::size_t c = 0; c < g.channels; ++c)
            y[out * g.channels + c] += static_cast<double>(x[in * g.channels + c]) / sizes[out % sizes.size()];
    });
}

template <class T>
void mean_pool_backward(const pooling& g, std::size_t batch, const T* dy, double* dx) {
    const std::vector<double> sizes = window_sizes(g);
    std::fill_n(dx, batch * g.in_size(), 0.0);
    for_taps(g, batch, [&](std::size_t out, std::size_t, std::size_t in) {
        for (std::size_t c = 0; c < g.channels; ++c)
            dx[in * g.channels + c] += static_cast<double>(dy[out * g.channels + c]) / sizes[out % sizes.size()];
    });
}

/// y = softmax of each row.
template <class T>
void softmax(std::size_t rows, std::size_t n, const T* x, double* y) {
    for (std::size_t r = 0; r < rows; ++r) {
        double most = -INFINITY;
        for (std::size_t i = 0; i < n; ++i) most = std::max(most, static_cast<double>(x[r * n + i]));
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += y[r * n + i] = std::exp(static_cast<double>(x[r * n + i]) - most);
        for (std::size_t i = 0; i < n; ++i) y[r * n + i] /= sum;
    }
}

template <class T>
double softmax_cross_entropy_rows(std::size_t rows, std::size_t n, const T* x, const std::int32_t* labels, double scale,
                                  double* dy) {
    reference::softmax(rows, n, x, dy);
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        double& target = dy[r * n + static_cast<std::size_t>(labels[r])];
        sum -= std::log(target);
        target -= 1;
        for (std::size_t i = 0; i < n; ++i) dy[r * n + i] *= scale;
    }
    return sum;
}

/// Indices of the k largest magnitudes in ascending order; a NaN is the largest of all, ties go to the lowest index.
template <class T>
std::vector<std::uint32_t> top_k(std::span<const T> v, std::size_t k) {
    std::vector<std::uint32_t> order(v.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto before = [&](std::uint32_t left, std::uint32_t right) {
        const bool left_nan = std::isnan(v[left]);
        const bool right_nan = std::isnan(v[right]);
        if (left_nan || right_nan) return left_nan && !right_nan;
        return std::abs(v[left]) > std::abs(v[right]);
    };
    std::stable_sort(order.begin(), order.end(), before);
    order.resize(std::min(k, v.size()));
    std::sort(order.begin(), order.end());
    return order;
}

}  // namespace lockstep::kernels::reference
