// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The naive versions of the normalisations, in double precision: what the fast ones are tested against.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/kernels/normalisation/local_response.hpp"

namespace lockstep::kernels::reference {

struct moments {
    std::vector<double> mean;
    std::vector<double> variance;  ///< biased
};

/// Of `count` groups of `size` numbers: number i of group j is x[j group_step + i step].
template <class T>
[[nodiscard]] moments moments_of(std::size_t count, std::size_t group_step, std::size_t size, std::size_t step,
                                 const T* x) {
    moments out{std::vector<double>(count), std::vector<double>(count)};
    for (std::size_t j = 0; j < count && size > 0; ++j) {
        const auto at = [&](std::size_t i) { return static_cast<long double>(x[j * group_step + i * step]); };
        long double mean = 0, squares = 0;
        for (std::size_t i = 0; i < size; ++i) mean += at(i);
        mean /= static_cast<long double>(size);
        for (std::size_t i = 0; i < size; ++i) squares += (at(i) - mean) * (at(i) - mean);
        out.mean[j] = static_cast<double>(mean);
        out.variance[j] = static_cast<double>(squares / static_cast<long double>(size));
    }
    return out;
}

/// Gradient with respect to the numbers of one group from g, that with respect to the normalised ones: (g - mean of g -
/// h mean of g h) inverse with h = (x - mean) inverse.
inline void normalise_backward(const std::vector<double>& h, const std::vector<double>& g, double inverse,
                               std::vector<double>& dx) {
    double sum = 0, product = 0;
    const auto n = static_cast<double>(h.size());
    for (std::size_t i = 0; i < h.size(); ++i) {
        sum += g[i] / n;
        product += g[i] * h[i] / n;
    }
    dx.resize(h.size());
    for (std::size_t i = 0; i < h.size(); ++i) dx[i] = (g[i] - sum - h[i] * product) * inverse;
}

/// Calls f(c, j) for each channel c and each channel j of its window.
template <class F>
void for_window(const local_response& how, std::size_t channels, F&& f) {
    const std::size_t half = how.window / 2;
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t j = c < half ? 0 : c - half; j < std::min(channels, c + half + 1); ++j) f(c, j);
}

template <class T>
[[nodiscard]] std::vector<double> response_bases(const local_response& how, std::size_t channels, const T* x) {
    std::vector<double> base(channels, how.offset);
    for_window(how, channels, [&](std::size_t c, std::size_t j) {
        base[c] += how.alpha * static_cast<double>(x[j]) * static_cast<double>(x[j]);
    });
    return base;
}

template <class T>
void local_response_forward(const local_response& how, std::size_t pixels, std::size_t channels, const T* x,
                            double* y) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        const auto base = response_bases(how, channels, x + pixel * channels);
        for (std::size_t c = 0; c < channels; ++c)
            y[pixel * channels + c] = static_cast<double>(x[pixel * channels + c]) * std::pow(base[c], -how.beta);
    }
}

template <class T>
void local_response_backward(const local_response& how, std::size_t pixels, std::size_t channels, const T* x,
                             const T* dy, double* dx) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
        const T* in = x + pixel * channels;
        const T* gradient = dy + pixel * channels;
        const auto base = response_bases(how, channels, in);
        double* out = dx + pixel * channels;
        for (std::size_t c = 0; c < channels; ++c)
            out[c] = static_cast<double>(gradient[c]) * std::pow(base[c], -how.beta);
        for_window(how, channels, [&](std::size_t c, std::size_t j) {
            out[c] -= 2 * how.alpha * how.beta * static_cast<double>(in[c]) * static_cast<double>(gradient[j]) *
                      static_cast<double>(in[j]) * std::pow(base[j], -how.beta - 1);
        });
    }
}

}  // namespace lockstep::kernels::reference
