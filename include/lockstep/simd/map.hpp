// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Element-wise loops: the last, partial vector runs the same instructions, so a result never depends on where in an
// array it lies.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::simd {

namespace detail {

template <class T>
inline constexpr bool is_output = !std::is_const_v<T>;

template <class F, class... Ts>
inline void map_vector(std::size_t at, F& f, Ts*... arrays) noexcept {
    [&](auto... values) {
        f(values...);
        auto put = [at]<class T>(T* array, const auto& value) {
            if constexpr (is_output<T>) simd::store(array + at, value);
        };
        (put(arrays, values), ...);
    }(load(arrays + at)...);
}

template <class F, class... Ts>
inline void map_rest(std::size_t at, std::size_t count, F& f, Ts*... arrays) noexcept {
    [&](auto... values) {
        f(values...);
        auto put = [=]<class T>(T* array, const auto& value) {
            if constexpr (is_output<T>) store_first(array + at, value, count);
        };
        (put(arrays, values), ...);
    }(load_first(arrays + at, count)...);
}

}  // namespace detail

/// Calls f(batch&...) on every vector of the arrays and stores what f left in those that are not const. Arrays are the
/// same or disjoint. Cost: each array is read once, each mutable one written once.
template <class F, class First, class... Rest>
inline void map(std::size_t n, F f, First* first, Rest*... rest) noexcept {
    using T = std::remove_const_t<First>;
    static_assert((std::is_same_v<T, std::remove_const_t<Rest>> && ...), "arrays of one element type");
    std::size_t at = 0;
    for (; at + width<T> <= n; at += width<T>) detail::map_vector(at, f, first, rest...);
    if (at < n) detail::map_rest(at, n - at, f, first, rest...);
}

/// out = f(values of the other arrays), vector by vector, past the caches where `streamed` (see streams());
/// stream_end() is the caller's. `out` is one of the others or disjoint from them.
template <class F, class T, class... In>
[[gnu::flatten]] inline void map_to(std::size_t n, bool streamed, const F& f, T* out, const In*... in) noexcept {
    std::size_t at = 0;
    if (streamed)
        for (; at + width<T> <= n; at += width<T>) {
            // Beside such stores the hardware does not fetch what is read.
            (__builtin_prefetch(in + at + 4096 / sizeof(T), 0, 3), ...);
            stream(out + at, f(load(in + at)...));
        }
    else
        for (; at + width<T> <= n; at += width<T>) simd::store(out + at, f(load(in + at)...));
    if (at < n) store_first(out + at, f(load_first(in + at, n - at)...), n - at);
}

/// to = from, disjoint and anywhere; past the caches where `streamed`, but for lines of which `to` is a part.
/// stream_end() is the caller's.
template <class T>
inline void copy(const T* from, std::size_t n, bool streamed, T* to) noexcept {
    std::size_t at = 0;
    if (streamed) {
        const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % alignment / sizeof(T);
        at = std::min(n, past == 0 ? 0 : alignment / sizeof(T) - past);
        std::copy_n(from, at, to);
        constexpr std::size_t line = alignment / sizeof(T);
        for (; at + line <= n; at += line)
            for (std::size_t i = at; i < at + line; i += width<T>) stream(to + i, load(from + i));
    }
    std::copy_n(from + at, n - at, to + at);
}

}  // namespace lockstep::simd
