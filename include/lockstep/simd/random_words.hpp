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

/// Eight counters, each number in the lower half of 64 bits; what is in the upper half does not matter.
struct philox_8 {
    __m512i c0, c1, c2, c3;

    void round(__m512i first, __m512i second, __m512i key0, __m512i key1) noexcept {
        const __m512i a = _mm512_mul_epu32(c0, first), b = _mm512_mul_epu32(c2, second);
        c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(b, 32), c1, key0, 0x96);
        c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(a, 32), c3, key1, 0x96);
        c1 = b;
        c3 = a;
    }
};

/// The keys of all rounds.
struct philox_keys {
    __m512i of[10][2];
    explicit philox_keys(const core::random_stream::address& from) noexcept {
        std::uint32_t key0 = from.key[0], key1 = from.key[1];
        for (auto& round : of) {
            round[0] = _mm512_set1_epi64(key0);
            round[1] = _mm512_set1_epi64(key1);
            key0 += 0x9E3779B9U;
            key1 += 0xBB67AE85U;
        }
    }
};

/// Words of blocks block .. block + 15; the lower half of their numbers does not overflow.
inline void philox_16(const core::random_stream::address& from, const philox_keys& keys, std::uint64_t block,
                      std::uint32_t* to) noexcept {
    const auto all = [](std::uint64_t number) { return _mm512_set1_epi64(static_cast<long long>(number)); };
    const __m512i first = all(0xD2511F53U), second = all(0xCD9E8D57U);
    const __m512i base = all(block & 0xFFFFFFFFU), high = all(block >> 32), step = all(from.step);
    const __m512i series = all(from.series);
    // With 32-bit numbers of both side by side, element 4 l + e has block 4 e + l, so that the transposition stays
    // within groups of four words.
    philox_8 even{_mm512_add_epi64(base, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11)), high, step, series};
    philox_8 odd{_mm512_add_epi64(base, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15)), high, step, series};
    for (const auto& key : keys.of) {
        even.round(first, second, key[0], key[1]);
        odd.round(first, second, key[0], key[1]);
    }
    const auto beside = [](__m512i low, __m512i upper) {
        return _mm512_mask_blend_epi32(0xAAAA, low, _mm512_slli_epi64(upper, 32));
    };
    const __m512i c0 = beside(even.c0, odd.c0), c1 = beside(even.c1, odd.c1);
    const __m512i c2 = beside(even.c2, odd.c2), c3 = beside(even.c3, odd.c3);
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
    if (first % 4 == 0 && out.size() >= group) {
        const detail::philox_keys keys{from};
        for (; done + group <= out.size(); done += group) {
            const std::uint64_t block = from.first + (first + done) / 4;
            if (static_cast<std::uint32_t>(block) > std::numeric_limits<std::uint32_t>::max() - 15) break;
            detail::philox_16(from, keys, block, out.data() + done);
        }
    }
#endif
    random.words(first + done, out.subspan(done));
}

}  // namespace lockstep::simd
