// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Whole numbers 0 .. 255 that are bytes in memory and floating-point numbers in registers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

// xsimd 8 converts between element sizes through memory, one element at a time, and so do the vector types of GCC 12.
#if defined(__AVX2__)
namespace detail {

/// Eight 32-bit numbers 0 .. 255 as bytes in the lower half.
[[nodiscard]] inline __m128i narrow(__m128i low, __m128i high) noexcept {
    const __m128i words = _mm_packus_epi32(low, high);
    return _mm_packus_epi16(words, words);
}

}  // namespace detail
#endif

/// width<T> bytes as numbers.
template <class T>
[[nodiscard]] inline batch<T> load_bytes(const std::uint8_t* from) noexcept {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>)
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    else
        return _mm512_cvtepi32_pd(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
    if constexpr (std::is_same_v<T, float>) {
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
    } else {
        std::int32_t bytes;
        std::memcpy(&bytes, from, sizeof(bytes));
        return _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)));
    }
#else
    std::array<T, width<T> > numbers;
    for (std::size_t i = 0; i < width<T>; ++i) numbers[i] = static_cast<T>(from[i]);
    return load(numbers.data());
#endif
}

/// Numbers as width<T> bytes.
template <class T>
inline void store_bytes(std::uint8_t* to, const batch<T>& numbers) noexcept {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(numbers)));
    } else {
        const __m256i whole = _mm512_cvttpd_epi32(numbers);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                         detail::narrow(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
    }
#elif defined(__AVX2__)
    if constexpr (std::is_same_v<T, float>) {
        const __m256i whole = _mm256_cvttps_epi32(numbers);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                         detail::narrow(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
    } else {
        const __m128i whole = _mm256_cvttpd_epi32(numbers);
        const std::int32_t bytes = _mm_cvtsi128_si32(detail::narrow(whole, whole));
        std::memcpy(to, &bytes, sizeof(bytes));
    }
#else
    std::array<T, width<T> > values;
    simd::store(values.data(), numbers);
    for (std::size_t i = 0; i < width<T>; ++i) to[i] = static_cast<std::uint8_t>(values[i]);
#endif
}

/// Which of width<T> bytes are this one.
template <class T>
[[nodiscard]] inline xsimd::batch_bool<T> equal_bytes(const std::uint8_t* from, std::uint8_t number) noexcept {
    using mask [[maybe_unused]] = xsimd::batch_bool<T>;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(number));
    if constexpr (std::is_same_v<T, float>)
        return mask(_mm_cmpeq_epi8_mask(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), wanted));
    else
        return mask(static_cast<__mmask8>(
            _mm_cmpeq_epi8_mask(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), wanted)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(number));
    if constexpr (std::is_same_v<T, float>) {
        const __m128i equal = _mm_cmpeq_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), wanted);
        return mask(_mm256_castsi256_ps(_mm256_cvtepi8_epi32(equal)));
    } else {
        std::int32_t bytes;
        std::memcpy(&bytes, from, sizeof(bytes));
        return mask(_mm256_castsi256_pd(_mm256_cvtepi8_epi64(_mm_cmpeq_epi8(_mm_cvtsi32_si128(bytes), wanted))));
    }
#else
    return load_bytes<T>(from) == batch<T>(static_cast<T>(number));
#endif
}

}  // namespace lockstep::simd
