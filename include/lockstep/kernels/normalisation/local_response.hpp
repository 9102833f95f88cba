// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Local response normalisation across channels: each number is divided by a power of the squares of its neighbours.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

/// Numbers of Krizhevsky, Sutskever, Hinton (2012), section 3.3: y = x / (offset + alpha sum of x^2)^beta, where the
/// sum goes over the `window` channels around (fewer at the ends), an odd number.
struct local_response {
    std::size_t window = 5;
    double alpha = 1e-4;
    double beta = 0.75;
    double offset = 2;
};

namespace detail {

/// One pixel with zeros on both sides, so that windows and vectors may reach over its ends.
template <class T>
[[nodiscard]] constexpr std::size_t response_margin(std::size_t window) noexcept {
    return whole_lines<T>(window / 2);
}
template <class T>
[[nodiscard]] constexpr std::size_t response_line(std::size_t channels, std::size_t window) noexcept {
    return whole_lines<T>(response_margin<T>(window) + channels + window / 2 + simd::width<T>);
}
/// Pixels that go through each step together: a vector across two that have just been stored has to wait until they are
/// in the cache.
[[nodiscard]] constexpr std::size_t response_pixels(std::size_t channels) noexcept {
    return std::max<std::size_t>(1, 512 / std::max<std::size_t>(1, channels));
}

/// base^(-3/4): a quarter of the exponent gives base^(-1/4) within 3 %, the power series of (1 - e)^(-1/4) and (1 -
/// e)^(-3/4) the rest, where e = 1 - base y^4 of what is known so far. For normal numbers; errs by less than two units
/// in the last place with fused multiply-adds. Much quicker than roots and a quotient.
[[nodiscard]] inline simd::batch<float> inverse_three_quarters(const simd::batch<float>& base) noexcept {
    using vector = simd::batch<float>;
    using integers = simd::batch<std::int32_t>;
    const vector one(1.0F);
    const vector guess = simd::bits_as<float>(integers(0x4f58cae5) - (simd::bits_as<std::int32_t>(base) >> 2));
    const vector less = -base;
    vector square = guess * guess;
    vector error = simd::fma(less * square, square, one);
    const vector series = simd::fma(simd::fma(vector(15.0F / 128), error, vector(5.0F / 32)), error, vector(1.0F / 4));
    const vector root = simd::fma(guess * error, series, guess);
    square = root * root;
    error = simd::fma(less * square, square, one);
    const vector cube = square * root;
    return select(base == vector(std::numeric_limits<float>::infinity()), vector(0.0F),
                  simd::fma(cube * vector(0.75F), error, cube));
}

/// base^-beta for a base of at least `offset` > 0. The usual exponents need no power of the library; which way is taken
/// depends on beta alone.
template <class T>
[[nodiscard]] inline simd::batch<T> inverse_power(const simd::batch<T>& base, double beta) noexcept {
    using vector = simd::batch<T>;
    const vector one(T{1});
    if (beta == 0.75) {
        if constexpr (std::is_same_v<T, float>) {
            return inverse_three_quarters(base);
        } else {
            const vector root = simd::sqrt(base);
            return one / (root * simd::sqrt(root));
        }
    }
    if (beta == 0.5) return one / simd::sqrt(base);
    if (beta == 1) return one / base;
    // One by one: no usual network has these, and xsimd's logarithm of AVX-512 vectors compiles with optimisation only.
    alignas(simd::alignment) T each[simd::width<T>];
    simd::store(each, base);
    for (T& one_base : each) one_base = std::pow(one_base, static_cast<T>(-beta));
    return simd::load(each);
}

template <class T>
[[nodiscard]] inline simd::batch<T> window_sum(const T* middle, std::size_t window) noexcept {
    const T* const line = middle - window / 2;
    simd::batch<T> sum = simd::load(line);
    // The usual window without a loop: its end is hard to foresee.
    if (window == 5)
        return sum + simd::load(line + 1) + simd::load(line + 2) + simd::load(line + 3) + simd::load(line + 4);
    for (std::size_t i = 1; i < window; ++i) sum = sum + simd::load(line + i);
    return sum;
}

/// Lines of a few pixels of one thread. What lies around the channels stays zero.
template <class T>
struct response_lines {
    std::size_t size;
    std::size_t margin;
    T* squares;
    T* products;
    response_lines(std::size_t channels, std::size_t window, std::size_t thread, std::span<T> scratch) noexcept
        : size{response_line<T>(channels, window)}, margin{response_margin<T>(window)} {
        const std::size_t all = size * response_pixels(channels);
        squares = scratch.data() + 2 * all * thread;
        products = squares + all;
        std::fill_n(squares, 2 * all, T{0});
    }
};

/// Calls f(part, pixel, its number in the run, channel) for each vector of a run of pixels.
template <class T, class F>
LOCKSTEP_FLATTEN inline void for_response_vectors(parallel::block run, std::size_t channels, F&& f) noexcept {
    constexpr std::size_t width = simd::width<T>;
    for (std::size_t pixel = run.first; pixel < run.last; ++pixel) {
        std::size_t c = 0;
        for (; c + width <= channels; c += width) f(channel_vector<T>{}, pixel, pixel - run.first, c);
        if (c < channels) f(channel_part<T>{channels - c}, pixel, pixel - run.first, c);
    }
}

/// Calls f(lines, run of pixels), with their squares in place. `streamed`: f stores past the caches.
template <class T, class F>
void for_pixels(const local_response& how, std::size_t pixels, std::size_t channels, const T* x, resources<T> use,
                bool streamed, F&& f) noexcept {
    const auto threads = static_cast<std::size_t>(use.team.threads);
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(pixels, threads, thread);
        const response_lines<T> lines{channels, how.window, thread, use.scratch};
        for (parallel::block run{mine.first, mine.first}; run.first < mine.last; run.first = run.last) {
            run.last = std::min(mine.last, run.first + response_pixels(channels));
            for_response_vectors<T>(
                run, channels, [=](const auto part, std::size_t pixel, std::size_t at, std::size_t c) LOCKSTEP_FLATTEN {
                    const simd::batch<T> value = part.load(x + pixel * channels + c);
                    simd::store(lines.squares + at * lines.size + lines.margin + c, value * value);
                });
            f(lines, run);
        }
        if (streamed) simd::stream_end();
    });
}

/// The base of the power, from the square in the middle of the window.
template <class T>
[[nodiscard]] inline simd::batch<T> response_base(const local_response& how, const T* squares) noexcept {
    return simd::fma(simd::batch<T>(static_cast<T>(how.alpha)), window_sum(squares, how.window),
                     simd::batch<T>(static_cast<T>(how.offset)));
}

}  // namespace detail

/// Elements of scratch of both passes.
template <class T>
[[nodiscard]] constexpr std::size_t local_response_scratch(std::size_t channels, std::size_t window,
                                                           parallel::team team) noexcept {
    return 2 * detail::response_pixels(channels) * detail::response_line<T>(channels, window) *
           static_cast<std::size_t>(team.threads);
}

/// y for `pixels` pixels of so many channels. x and y are the same array or disjoint. Each is read or written once.
template <class T>
void local_response_forward(const local_response& how, std::size_t pixels, std::size_t channels, const T* x, T* y,
                            resources<T> use) noexcept {
    const bool streamed = y != x && simd::streams(y, pixels * channels, channels);
    detail::for_pixels(
        how, pixels, channels, x, use, streamed, [=](const detail::response_lines<T>& lines, parallel::block run) {
            detail::for_response_vectors<T>(
                run, channels, [=](const auto part, std::size_t pixel, std::size_t at, std::size_t c) LOCKSTEP_FLATTEN {
                    const simd::batch<T> base =
                        detail::response_base(how, lines.squares + at * lines.size + lines.margin + c);
                    detail::put(part, streamed, y + pixel * channels + c,
                                part.load(x + pixel * channels + c) * detail::inverse_power(base, how.beta));
                });
        });
}

/// dx_i = dy_i base_i^-beta - 2 alpha beta x_i sum over the window around i of dy_j x_j base_j^(-beta - 1). dx may be
/// dy.
template <class T>
void local_response_backward(const local_response& how, std::size_t pixels, std::size_t channels, const T* x,
                             const T* dy, T* dx, resources<T> use) noexcept {
    using vector = simd::batch<T>;
    detail::for_pixels(
        how, pixels, channels, x, use, false, [=](const detail::response_lines<T>& lines, parallel::block run) {
            detail::for_response_vectors<T>(
                run, channels, [=](const auto part, std::size_t pixel, std::size_t at, std::size_t c) LOCKSTEP_FLATTEN {
                    const vector base = detail::response_base(how, lines.squares + at * lines.size + lines.margin + c);
                    const vector gradient =
                        part.load(dy + pixel * channels + c) * detail::inverse_power(base, how.beta);
                    part.store(dx + pixel * channels + c, gradient);
                    simd::store(lines.products + at * lines.size + lines.margin + c,
                                gradient * part.load(x + pixel * channels + c) / base);
                });
            detail::for_response_vectors<T>(
                run, channels,
                [=, back = vector(static_cast<T>(-2 * how.alpha * how.beta))](
                    const auto part, std::size_t pixel, std::size_t at, std::size_t c) LOCKSTEP_FLATTEN {
                    const vector sum =
                        detail::window_sum(lines.products + at * lines.size + lines.margin + c, how.window);
                    T* const to = dx + pixel * channels + c;
                    part.store(to, simd::fma(back * part.load(x + pixel * channels + c), sum, part.load(to)));
                });
        });
}

LOCKSTEP_TEMPLATE(local_response_forward<float>);
LOCKSTEP_TEMPLATE(local_response_backward<float>);

}  // namespace lockstep::kernels
