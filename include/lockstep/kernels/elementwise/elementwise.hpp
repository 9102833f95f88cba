// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Element-wise kernels on spans: activations, sums, scaling, and the search for numbers that are not finite.

#include <atomic>
#include <cmath>
#include <cstddef>
#include <span>

#include "lockstep/kernels/library.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/exp.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::kernels {

namespace detail {

/// 1 / (1 + exp(-x)), below 0 as exp(x) / (1 + exp(x)); NaN stays.
template <class T>
[[nodiscard]] inline simd::batch<T> sigmoid(const simd::batch<T>& x) noexcept {
    const simd::batch<T> one(T{1});
    const simd::batch<T> power = simd::exp_below_zero(-abs(x));
    return select(x < simd::batch<T>(T{0}), power, one) / (one + power);
}

/// s(2 u(x)) of GELU, where it is taken, and 2 u' there.
template <class T>
struct gelu_gate {
    simd::batch<T> at;
    simd::batch<T> value;
    simd::batch<T> derivative;
    explicit gelu_gate(const simd::batch<T>& x) noexcept {
        using batch = simd::batch<T>;
        constexpr double twice = 1.5957691216057307117597842397375;  // 2 sqrt(2 / pi)
        // Beyond 30 the gate is 0 or 1 to the last bit, and the cube cannot overflow before.
        at = select(x == x, min(max(x, batch(T{-30})), batch(T{30})), x);
        const batch square = at * at;
        value =
            sigmoid<T>(at * simd::fma(square, batch(static_cast<T>(twice * 0.044715)), batch(static_cast<T>(twice))));
        derivative = simd::fma(square, batch(static_cast<T>(3 * twice * 0.044715)), batch(static_cast<T>(twice)));
    }
};

/// max(x, 0); NaN stays.
template <class V>
[[nodiscard]] inline V relu(const V& x) noexcept {
    const V zero(0);
    return select(x <= zero, zero, x);
}

/// dy where y = relu(x) > 0 (or x > 0), else 0; NaN where it is NaN.
template <class V>
[[nodiscard]] inline V relu_gradient(const V& y, const V& dy) noexcept {
    const V zero(0);
    return select(y <= zero, zero, select(y == y, dy, y));
}

/// out = f(values of the other arrays, which have its size); far more than the caches hold goes past them, unless it
/// lies where a number was read.
template <class T, class F, class... In>
inline void each_to(std::span<T> out, const F& f, const In*... in) noexcept {
    const bool streamed = ((out.data() != in) && ...) && simd::streams(out.data(), out.size(), 0);
    simd::map_to(out.size(), streamed, f, out.data(), in...);
    if (streamed) simd::stream_end();
}

}  // namespace detail

/// y = max(x, 0); relu(NaN) = NaN. x and y are the same array or disjoint.
template <class T>
void relu_forward(std::span<const T> x, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        y, [](const batch& in) { return detail::relu(in); }, x.data());
}

/// dx = dy where y > 0, else 0; y is what relu_forward wrote. dx may be dy. A NaN in y gives a NaN.
template <class T>
void relu_backward(std::span<const T> y, std::span<const T> dy, std::span<T> dx) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        dx, [](const batch& out, const batch& gradient) { return detail::relu_gradient(out, gradient); }, y.data(),
        dy.data());
}

/// y = tanh(x). x and y are the same array or disjoint.
template <class T>
void tanh_forward(std::span<const T> x, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        y,
        [](const batch& in) {
            if constexpr (sizeof(T) == sizeof(float)) {
                return select(in == in, tanh(in), in);
            } else {
                // xsimd converts 2 in / log(2) to an integer: infinity has none. From 20 on tanh is 1.
                const batch most(T{40});
                return select(in == in, tanh(select(in < most, select(in > -most, in, -most), most)), in);
            }
        },
        x.data());
}

/// dx = dy (1 - y^2); y is what tanh_forward wrote. dx may be dy.
template <class T>
void tanh_backward(std::span<const T> y, std::span<const T> dy, std::span<T> dx) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        dx, [one = batch(T{1})](const batch& out, const batch& gradient) { return gradient * (one - out * out); },
        y.data(), dy.data());
}

/// y = 1 / (1 + exp(-x)). x and y are the same array or disjoint.
template <class T>
void sigmoid_forward(std::span<const T> x, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        y, [](const batch& in) { return detail::sigmoid<T>(in); }, x.data());
}

/// dx = dy y (1 - y); y is what sigmoid_forward wrote. dx may be dy.
template <class T>
void sigmoid_backward(std::span<const T> y, std::span<const T> dy, std::span<T> dx) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        dx, [one = batch(T{1})](const batch& out, const batch& gradient) { return gradient * (out * (one - out)); },
        y.data(), dy.data());
}

/// y = x s(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3) and the sigmoid s: the form of GELU with tanh (Hendrycks,
/// Gimpel 2016), because 1 + tanh(u) = 2 s(2 u). It differs from x Phi(x) by less than 5e-4. x and y are the same array
/// or disjoint; minus infinity gives NaN.
template <class T>
void gelu_forward(std::span<const T> x, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        y, [](const batch& in) { return in * detail::gelu_gate<T>(in).value; }, x.data());
}

/// dx = dy (s + x s (1 - s) 2 u') with the s and u of gelu_forward. dx may be dy.
template <class T>
void gelu_backward(std::span<const T> x, std::span<const T> dy, std::span<T> dx) noexcept {
    using batch = simd::batch<T>;
    detail::each_to(
        dx,
        [one = batch(T{1})](const batch& in, const batch& gradient) {
            const auto gate = detail::gelu_gate<T>(in);
            return gradient * simd::fma(gate.at * gate.derivative, gate.value * (one - gate.value), gate.value);
        },
        x.data(), dy.data());
}

/// y = y + a x, rounded once.
template <class T>
void axpy(T a, std::span<const T> x, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    simd::map(
        x.size(), [factor = batch(a)](const batch& in, batch& sum) { sum = simd::fma(factor, in, sum); }, x.data(),
        y.data());
}

/// y = y + x.
template <class T>
void add(std::span<const T> x, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    simd::map(
        x.size(), [](const batch& in, batch& sum) { sum = sum + in; }, x.data(), y.data());
}

/// y = a y.
template <class T>
void scale(T a, std::span<T> y) noexcept {
    using batch = simd::batch<T>;
    simd::map(
        y.size(), [factor = batch(a)](batch& value) { value = factor * value; }, y.data());
}

namespace detail {

template <class T>
[[nodiscard]] std::size_t first_non_finite(std::span<const T> x) noexcept {
    using batch = simd::batch<T>;
    constexpr std::size_t stride = 4 * simd::width<T>;
    std::size_t at = 0;
    for (; at + stride <= x.size(); at += stride) {
        // x - x is 0 for finite x and NaN otherwise, and a NaN survives every sum.
        batch sum(T{0});
        for (std::size_t v = 0; v < 4; ++v) {
            const batch value = simd::load(x.data() + at + v * simd::width<T>);
            sum += value - value;
        }
        if (!all(sum == sum)) break;
    }
    while (at < x.size() && std::isfinite(x[at])) ++at;
    return at;
}

}  // namespace detail

/// Index of the first element that is infinite or NaN; x.size() if all are finite. Reads at memory speed.
template <class T>
[[nodiscard]] std::size_t first_non_finite(std::span<const T> x, parallel::team team = {}) noexcept {
    std::atomic<std::size_t> first = x.size();
    parallel::for_blocks(team, x.size(), 16384, [&](parallel::block part) {
        const std::size_t here = detail::first_non_finite(x.subspan(part.first, part.size()));
        std::size_t least = first;
        while (here < part.size() && part.first + here < least &&
               !first.compare_exchange_weak(least, part.first + here)) {
        }
    });
    return first;
}

LOCKSTEP_TEMPLATE(relu_forward<float>);
LOCKSTEP_TEMPLATE(relu_backward<float>);
LOCKSTEP_TEMPLATE(tanh_forward<float>);
LOCKSTEP_TEMPLATE(tanh_backward<float>);
LOCKSTEP_TEMPLATE(sigmoid_forward<float>);
LOCKSTEP_TEMPLATE(sigmoid_backward<float>);
LOCKSTEP_TEMPLATE(gelu_forward<float>);
LOCKSTEP_TEMPLATE(gelu_backward<float>);
LOCKSTEP_TEMPLATE(axpy<float>);
LOCKSTEP_TEMPLATE(add<float>);
LOCKSTEP_TEMPLATE(first_non_finite<float>);

}  // namespace lockstep::kernels
