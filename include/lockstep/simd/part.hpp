// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Vectors of which only the first elements exist in memory: nothing after them is touched.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

#if defined(__AVX__) && !defined(__AVX512F__)
namespace detail {

/// The mask whose first `count` elements are set: a window into as many ones and zeros as there are elements.
template <class T>
[[nodiscard]] inline __m256i first_mask(std::size_t count) noexcept {
    using integer = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
    alignas(alignment) static constexpr auto ones = [] {
        std::array<integer, 2 * width<T>> out{};
        for (std::size_t i = 0; i < width<T>; ++i) out[i] = -1;
        return out;
    }();
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ones.data() + width<T> - count));
}

}  // namespace detail
#endif

/// The first `count` elements, at most a vector; those after them are 0.
template <class T>
[[nodiscard]] inline batch<T> load_first(const T* from, std::size_t count) noexcept {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>)
        return batch<T>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), from));
    else
        return batch<T>(_mm512_maskz_loadu_pd(static_cast<__mmask8>((1U << count) - 1), from));
#elif defined(__AVX__)
    if constexpr (std::is_same_v<T, float>)
        return batch<T>(_mm256_maskload_ps(from, detail::first_mask<T>(count)));
    else
        return batch<T>(_mm256_maskload_pd(from, detail::first_mask<T>(count)));
#else
    std::array<T, width<T>> copy{};
    std::copy_n(from, count, copy.begin());
    return load(copy.data());
#endif
}

/// Stores the first `count` elements, at most a vector.
template <class T>
inline void store_first(T* to, const batch<T>& value, std::size_t count) noexcept {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>)
        _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1), value);
    else
        _mm512_mask_storeu_pd(to, static_cast<__mmask8>((1U << count) - 1), value);
#elif defined(__AVX__)
    if constexpr (std::is_same_v<T, float>)
        _mm256_maskstore_ps(to, detail::first_mask<T>(count), value);
    else
        _mm256_maskstore_pd(to, detail::first_mask<T>(count), value);
#else
    std::array<T, width<T>> copy;
    simd::store(copy.data(), value);
    std::copy_n(copy.begin(), count, to);
#endif
}

}  // namespace lockstep::simd
