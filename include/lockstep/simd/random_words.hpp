// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Many words of a random stream at once: the words of core::random_stream, sixteen counters side by side.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "lockstep/core/random.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

#if defined(__AVX512F__)
namespace detail {

struct products {
    __m512i low, high;
};
/// Of each 32-bit number with one of 32 bits.
[[nodiscard]] inline products multiply(__m512i numbers, __m512i by) noexcept {
    const __m512i even = _mm512_mul_epu32(numbers, by);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(numbers, 32), by);
    return {_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32)),
            _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd)};
}

/// Words of blocks block .. block + 15; the lower half of their numbers does not overflow.
inline void philox_16(const core::random_stream::address& from, std::uint64_t block, std::uint32_t* to) noexcept {
    const auto all = [](std::uint32_t number) { return _mm512_set1_epi32(static_cast<int>(number)); };
    const __m512i first = all(0xD2511F53U), second = all(0xCD9E8D57U);
    // Element 4 l + e has block 4 e + l, so that the transposition stays within groups of four words.
    const __m512i number = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i c0 = _mm512_add_epi32(all(static_cast<std::uint32_t>(block)), number);
    __m512i c1 = all(static_cast<std::uint32_t>(block >> 32)), c2 = all(from.step), c3 = all(from.series);
    std::uint32_t key0 = from.key[0], key1 = from.key[1];
    for (int round = 0; round < 10; ++round) {
        const auto a = multiply(c0, first), b = multiply(c2, second);
        c0 = _mm512_ternarylogic_epi32(b.high, c1, all(key0), 0x96);
        c2 = _mm512_ternarylogic_epi32(a.high, c3, all(key1), 0x96);
        c1 = b.low;
        c3 = a.low;
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    const __m512i low01 = _mm512_unpacklo_epi32(c0, c1), high01 = _mm512_unpackhi_epi32(c0, c1);
    const __m512i low23 = _mm512_unpacklo_epi32(c2, c3), high23 = _mm512_unpackhi_epi32(c2, c3);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(low01, low23));
    _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi64(low01, low23));
    _mm512_storeu_si512(to + 32, _mm512_unpacklo_epi64(high01, high23));
    _mm512_storeu_si512(to + 48, _mm512_unpackhi_epi64(high01, high23));
}

}  // namespace detail
#endif

/// Words first .. first + out.size() - 1.
inline void random_words(const core::random_stream& random, std::uint64_t first,
                         std::span<std::uint32_t> out) noexcept {
    std::size_t done = 0;
#if defined(__AVX512F__)
    constexpr std::size_t group = 64;
    const auto from = random.location();
    if (first % 4 == 0)
        for (; done + group <= out.size(); done += group) {
            const std::uint64_t block = from.first + (first + done) / 4;
            if (static_cast<std::uint32_t>(block) > std::numeric_limits<std::uint32_t>::max() - 15) break;
            detail::philox_16(from, block, out.data() + done);
        }
#endif
    random.words(first + done, out.subspan(done));
}

}  // namespace lockstep::simd
