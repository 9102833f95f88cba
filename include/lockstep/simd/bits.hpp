// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Masks of vectors as bits in memory: element i of an array is bit i, lowest bit of lowest byte first.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::simd {

/// Element i is set where bit i is.
template <class T>
[[nodiscard]] inline xsimd::batch_bool<T> mask_of(std::uint32_t bits) noexcept {
#if defined(__AVX512F__)
    using mask = std::conditional_t<sizeof(T) == 4, __mmask16, __mmask8>;
    return xsimd::batch_bool<T>(static_cast<mask>(bits));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) {
        const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        const __m256i here = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each);
        return xsimd::batch_bool<T>(_mm256_castsi256_ps(_mm256_cmpeq_epi32(here, each)));
    } else {
        const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
        const __m256i here = _mm256_and_si256(_mm256_set1_epi64x(bits), each);
        return xsimd::batch_bool<T>(_mm256_castsi256_pd(_mm256_cmpeq_epi64(here, each)));
    }
#else
    std::array<T, width<T>> numbers;
    for (std::size_t i = 0; i < width<T>; ++i) numbers[i] = static_cast<T>(bits >> i & 1U);
    return load(numbers.data()) != batch<T>(T{0});
#endif
}

/// Bit i is set where element i is not below zero: also for NaN and both zeros.
template <class T>
[[nodiscard]] inline std::uint32_t not_negative(const batch<T>& values) noexcept {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>)
        return _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_NLT_UQ);
    else
        return _mm512_cmp_pd_mask(values, _mm512_setzero_pd(), _CMP_NLT_UQ);
#elif defined(__AVX__)
    if constexpr (std::is_same_v<T, float>)
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_NLT_UQ)));
    else
        return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd(values, _mm256_setzero_pd(), _CMP_NLT_UQ)));
#else
    std::array<T, width<T>> numbers;
    simd::store(numbers.data(), values);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < width<T>; ++i) bits |= (numbers[i] < 0 ? 0U : 1U) << i;
    return bits;
#endif
}

/// Bits first .. first + count - 1, count <= 16. No byte is read that holds none of them.
[[nodiscard]] inline std::uint32_t load_bits(const std::byte* from, std::size_t first, std::size_t count) noexcept {
    // Not one call of memcpy for a length that is known only now: that takes longer than the rest.
    const std::size_t at = first % 8, end = at + count;
    const std::byte* const bytes = from + first / 8;
    std::uint32_t out = count > 0 ? std::to_integer<std::uint32_t>(bytes[0]) : 0;
    if (end > 8) out |= std::to_integer<std::uint32_t>(bytes[1]) << 8;
    if (end > 16) out |= std::to_integer<std::uint32_t>(bytes[2]) << 16;
    return out >> at & ((1U << count) - 1);
}

/// `count` numbers, at most a vector, from any address; those after them are 0.
template <class T>
[[nodiscard]] inline batch<T> load_bytes_of(const std::byte* from, std::size_t count) noexcept {
    if (count == width<T>) {
        typename batch<T>::register_type all;
        std::memcpy(&all, from, sizeof(all));
        return all;
    }
    std::array<T, width<T>> numbers{};
    std::memcpy(numbers.data(), from, count * sizeof(T));
    return load(numbers.data());
}

/// Writes a bit for each value: set unless it is below zero. The unused bits of the last byte are 0.
template <class T>
inline void store_signs(const T* values, std::size_t n, std::byte* to) noexcept {
    constexpr std::size_t group = 16;
    for (std::size_t first = 0; first < n; first += group) {
        std::uint32_t bits = 0;
        const std::size_t count = std::min(group, n - first);
        for (std::size_t at = 0; at < count; at += width<T>) {
            const std::size_t here = std::min(width<T>, count - at);
            const std::uint32_t some = here == width<T> ? not_negative(load(values + first + at))
                                                        : not_negative(load_first(values + first + at, here));
            bits |= (some & ((1U << here) - 1)) << at;
        }
        std::memcpy(to + first / 8, &bits, (count + 7) / 8);
    }
}

/// sum += scale x (high where the bit is set, low where it is not), bits from number `first` on.
template <class T>
inline void add_chosen(const std::byte* bits, std::size_t first, T scale, T high, T low, T* sum,
                       std::size_t n) noexcept {
    const batch<T> factor(scale), set(high), clear(low);
    std::size_t at = 0;
    for (; at + width<T> <= n; at += width<T>) {
        const auto chosen = select(mask_of<T>(load_bits(bits, first + at, width<T>)), set, clear);
        simd::store(sum + at, fma(factor, chosen, load(sum + at)));
    }
    if (at < n) {
        const auto chosen = select(mask_of<T>(load_bits(bits, first + at, n - at)), set, clear);
        store_first(sum + at, fma(factor, chosen, load_first(sum + at, n - at)), n - at);
    }
}

}  // namespace lockstep::simd
