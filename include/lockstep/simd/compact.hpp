// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which elements of a vector are large, as a list of their numbers.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

#if defined(__AVX2__) && !defined(__AVX512F__)
namespace detail {

/// For each mask of eight elements the numbers of those that are set, ascending.
inline constexpr auto places_of_mask = [] {
    std::array<std::array<std::uint8_t, 8>, 256> out{};
    for (unsigned mask = 0; mask < 256; ++mask)
        for (unsigned i = 0, count = 0; i < 8; ++i)
            if (mask >> i & 1U) out[mask][count++] = static_cast<std::uint8_t>(i);
    return out;
}();

}  // namespace detail
#endif

/// Appends to `out` the numbers first + i, ascending, of those i < width<T> for which not |v[i]| < least, and returns
/// how many there are. NaN is not less than anything. Writes width<T> numbers, of which the others mean nothing.
template <class T>
inline std::size_t append_large(const T* v, std::uint32_t first, const batch<T>& least, std::uint32_t* out) noexcept {
#if defined(__AVX512F__) && defined(__AVX512VL__)
    // The numbers that count move together in a register: a store by mask costs many times as much on some processors.
    if constexpr (sizeof(batch<T>) == 64 && std::is_same_v<T, float>) {
        const __m512i numbers =
            _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                             _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
        const __mmask16 large = _mm512_cmp_ps_mask(abs(load(v)), least, _CMP_NLT_UQ);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(large, numbers));
        return static_cast<std::size_t>(__builtin_popcount(large));
    } else if constexpr (sizeof(batch<T>) == 64 && std::is_same_v<T, double>) {
        const __m256i numbers =
            _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
        const __mmask8 large = _mm512_cmp_pd_mask(abs(load(v)), least, _CMP_NLT_UQ);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_maskz_compress_epi32(large, numbers));
        return static_cast<std::size_t>(__builtin_popcount(large));
    }
#elif defined(__AVX2__) && !defined(__AVX512F__)
    std::uint32_t large = 0;
    if constexpr (std::is_same_v<T, float>)
        large = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(abs(load(v)), least, _CMP_NLT_UQ)));
    else
        large = static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd(abs(load(v)), least, _CMP_NLT_UQ)));
    const __m128i places = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(detail::places_of_mask[large].data()));
    if constexpr (sizeof(T) == 4)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                            _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), _mm256_cvtepu8_epi32(places)));
    else
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                         _mm_add_epi32(_mm_set1_epi32(static_cast<int>(first)), _mm_cvtepu8_epi32(places)));
    return static_cast<std::size_t>(__builtin_popcount(large));
#else
    const auto below = abs(load(v)) < least;
    if (xsimd::all(below)) return 0;
    std::array<T, width<T> > bound;
    simd::store(bound.data(), least);
    std::size_t count = 0;
    // Each element writes its number, and only those that count move on.
    for (std::size_t i = 0; i < width<T>; ++i) {
        out[count] = first + static_cast<std::uint32_t>(i);
        count += !(std::abs(v[i]) < bound[i]);
    }
    return count;
#endif
}

}  // namespace lockstep::simd
