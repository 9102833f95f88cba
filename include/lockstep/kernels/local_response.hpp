// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Local response normalisation across channels: each number is divided by a power of the squares of its neighbours.

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/kernels/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

/// Numbers of Krizhevsky, Sutskever, Hinton (2012), section 3.3: y = x / (offset + alpha sum of x^2)^beta, where the sum goes over the `window`
/// channels around (fewer at the ends), an odd number.
struct local_response {
    std::size_t window = 5;
    double alpha = 1e-4;
    double beta = 0.75;
    double offset = 2;
};

namespace detail {

/// One pixel with zeros on both sides, so that windows and vectors may reach over its ends.
[[nodiscard]] constexpr std::size_t response_margin(std::size_t window) noexcept { return window / 2; }
template <class T>
[[nodiscard]] constexpr std::size_t response_line(std::size_t channels, std::size_t window) noexcept {
    return whole_lines<T>(channels + 2 * response_margin(window) + simd::width<T>);
}

/// base^-beta for a base of at least `offset` > 0. The usual exponents need no logarithm; which way is taken depends on beta alone.
template <class T>
[[nodiscard]] inline simd::batch<T> inverse_power(const simd::batch<T>& base, double beta) noexcept {
    using vector = simd::batch<T>;
    const vector one(T{1});
    if (beta == 0.75) {
        const vector root = sqrt(base);
        return one / (root * sqrt(root));
    }
    if (beta == 0.5) return one / sqrt(base);
    if (beta == 1) return one / base;
    const vector power = exp(vector(static_cast<T>(-beta)) * log(base));
    return select(base == base, power, base);
}

template <class T>
[[nodiscard]] inline simd::batch<T> window_sum(const T* line, std::size_t window) noexcept {
    simd::batch<T> sum = simd::load(line);
    for (std::size_t i = 1; i < window; ++i) sum = sum + simd::load(line + i);
    return sum;
}

/// Lines of one thread. What lies behind the channels stays zero in those that are read beyond them.
template <class T>
struct response_lines {
    T* x;
    T* dy;
    T* out;
    T* squares;   ///< with zeros in front
    T* products;  ///< with zeros in front
    response_lines(std::size_t channels, std::size_t window, std::size_t thread, std::span<T> scratch) noexcept {
        const std::size_t line = response_line<T>(channels, window);
        x = scratch.data() + 5 * line * thread;
        dy = x + line;
        out = dy + line;
        squares = out + line;
        products = squares + line;
        std::fill_n(x, 5 * line, T{0});
    }
};

/// Calls f(lines, pixel) for each pixel, with its squares in place.
template <class T, class F>
void for_pixels(const local_response& how, std::size_t pixels, std::size_t channels, const T* x, resources<T> use, F&& f) noexcept {
    const auto threads = static_cast<std::size_t>(use.team.threads);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(pixels, threads, thread);
        const response_lines<T> lines{channels, how.window, thread, use.scratch};
        T* const squares = lines.squares + response_margin(how.window);
        for (std::size_t pixel = mine.first; pixel < mine.last; ++pixel) {
            std::copy_n(x + pixel * channels, channels, lines.x);
            for (std::size_t c = 0; c < channels; c += simd::width<T>) {
                const simd::batch<T> value = simd::load(lines.x + c);
                simd::store(squares + c, value * value);
            }
            f(lines, pixel);
        }
    });
}

/// The base of the power of the channels from c on.
template <class T>
[[nodiscard]] inline simd::batch<T> response_base(const local_response& how, const response_lines<T>& lines, std::size_t c) noexcept {
    return simd::fma(simd::batch<T>(static_cast<T>(how.alpha)), window_sum(lines.squares + c, how.window),
                     simd::batch<T>(static_cast<T>(how.offset)));
}

}  // namespace detail

/// Elements of scratch of both passes.
template <class T>
[[nodiscard]] constexpr std::size_t local_response_scratch(std::size_t channels, std::size_t window, parallel::team team) noexcept {
    return 5 * detail::response_line<T>(channels, window) * static_cast<std::size_t>(team.threads);
}

/// y for `pixels` pixels of so many channels. x and y are the same array or disjoint. Each is read or written once.
template <class T>
void local_response_forward(const local_response& how, std::size_t pixels, std::size_t channels, const T* x, T* y,
                            resources<T> use) noexcept {
    detail::for_pixels(how, pixels, channels, x, use, [&](const detail::response_lines<T>& lines, std::size_t pixel) {
        for (std::size_t c = 0; c < channels; c += simd::width<T>)
            simd::store(lines.out + c, simd::load(lines.x + c) * detail::inverse_power(detail::response_base(how, lines, c), how.beta));
        std::copy_n(lines.out, channels, y + pixel * channels);
    });
}

/// dx_i = dy_i base_i^-beta - 2 alpha beta x_i sum over the window around i of dy_j x_j base_j^(-beta - 1). dx may be dy.
template <class T>
void local_response_backward(const local_response& how, std::size_t pixels, std::size_t channels, const T* x, const T* dy, T* dx,
                             resources<T> use) noexcept {
    using vector = simd::batch<T>;
    const std::size_t margin = detail::response_margin(how.window);
    const vector back(static_cast<T>(-2 * how.alpha * how.beta));
    detail::for_pixels(how, pixels, channels, x, use, [&](const detail::response_lines<T>& lines, std::size_t pixel) {
        std::copy_n(dy + pixel * channels, channels, lines.dy);
        for (std::size_t c = 0; c < channels; c += simd::width<T>) {
            const vector base = detail::response_base(how, lines, c);
            const vector slope = simd::load(lines.dy + c) * detail::inverse_power(base, how.beta);
            simd::store(lines.out + c, slope);
            simd::store(lines.products + margin + c, slope * simd::load(lines.x + c) / base);
        }
        for (std::size_t c = 0; c < channels; c += simd::width<T>)
            simd::store(lines.out + c, simd::fma(back * simd::load(lines.x + c), detail::window_sum(lines.products + c, how.window),
                                                 simd::load(lines.out + c)));
        std::copy_n(lines.out, channels, dx + pixel * channels);
    });
}

}  // namespace lockstep::kernels
