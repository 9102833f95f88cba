// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Four neighbouring columns of as many rows as a vector has elements, as four vectors and back.

#include <cstddef>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

#if defined(__AVX2__)
namespace detail {

/// The four columns of the four rows in each 16 bytes of the vectors; its own inverse.
inline void transpose_lanes(batch<float> (&rows)[4]) noexcept {
#if defined(__AVX512F__)
    const auto low = [](__m512 a, __m512 b) { return _mm512_castps_pd(_mm512_unpacklo_ps(a, b)); };
    const auto high = [](__m512 a, __m512 b) { return _mm512_castps_pd(_mm512_unpackhi_ps(a, b)); };
    const auto first = [](__m512d a, __m512d b) { return _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)); };
    const auto second = [](__m512d a, __m512d b) { return _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)); };
#else
    const auto low = [](__m256 a, __m256 b) { return _mm256_castps_pd(_mm256_unpacklo_ps(a, b)); };
    const auto high = [](__m256 a, __m256 b) { return _mm256_castps_pd(_mm256_unpackhi_ps(a, b)); };
    const auto first = [](__m256d a, __m256d b) { return _mm256_castpd_ps(_mm256_unpacklo_pd(a, b)); };
    const auto second = [](__m256d a, __m256d b) { return _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)); };
#endif
    const auto a = low(rows[0], rows[1]), b = low(rows[2], rows[3]), c = high(rows[0], rows[1]),
               d = high(rows[2], rows[3]);
    rows[0] = first(a, b);
    rows[1] = second(a, b);
    rows[2] = first(c, d);
    rows[3] = second(c, d);
}

}  // namespace detail
#endif

/// columns[j][i] = from[i * ld + j] for j < 4.
inline void load_columns(const float* from, std::size_t ld, batch<float> (&columns)[4]) noexcept {
#if defined(__AVX2__)
    for (std::size_t j = 0; j < 4; ++j) {
        const auto lane = [&](std::size_t number) { return _mm_loadu_ps(from + (4 * number + j) * ld); };
#if defined(__AVX512F__)
        __m512 row = _mm512_insertf32x4(_mm512_castps128_ps512(lane(0)), lane(1), 1);
        row = _mm512_insertf32x4(row, lane(2), 2);
        columns[j] = _mm512_insertf32x4(row, lane(3), 3);
#else
        columns[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(lane(0)), lane(1), 1);
#endif
    }
    detail::transpose_lanes(columns);
#else
    float copy[4][width<float>];
    for (std::size_t j = 0; j < 4; ++j) {
        for (std::size_t i = 0; i < width<float>; ++i) copy[j][i] = from[i * ld + j];
        columns[j] = load(copy[j]);
    }
#endif
}

/// to[i * ld + j] = columns[j][i] for j < 4. `columns` is overwritten.
inline void store_columns(float* to, std::size_t ld, batch<float> (&columns)[4]) noexcept {
#if defined(__AVX2__)
    detail::transpose_lanes(columns);
    for (std::size_t j = 0; j < 4; ++j) {
        const auto put = [&](std::size_t number, __m128 lane) { _mm_storeu_ps(to + (4 * number + j) * ld, lane); };
#if defined(__AVX512F__)
        put(0, _mm512_castps512_ps128(columns[j]));
        put(1, _mm512_extractf32x4_ps(columns[j], 1));
        put(2, _mm512_extractf32x4_ps(columns[j], 2));
        put(3, _mm512_extractf32x4_ps(columns[j], 3));
#else
        put(0, _mm256_castps256_ps128(columns[j]));
        put(1, _mm256_extractf128_ps(columns[j], 1));
#endif
    }
#else
    float copy[4][width<float>];
    for (std::size_t j = 0; j < 4; ++j) {
        simd::store(copy[j], columns[j]);
        for (std::size_t i = 0; i < width<float>; ++i) to[i * ld + j] = copy[j][i];
    }
#endif
}

}  // namespace lockstep::simd
