// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Many words of a random stream at once: the words of core::random_stream, many counters side by side.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/core/random.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

#if defined(__AVX2__)
namespace detail {

/// Numbers of 64 bits side by side, and what Philox does with them.
#if defined(__AVX512F__)
using words_64 = __m512i;
inline words_64 all_64(std::uint64_t number) noexcept { return _mm512_set1_epi64(static_cast<long long>(number)); }
inline words_64 plus(words_64 a, words_64 b) noexcept { return _mm512_add_epi64(a, b); }
/// Of the lower halves.
inline words_64 times(words_64 a, words_64 b) noexcept { return _mm512_mul_epu32(a, b); }
inline words_64 upper_halves(words_64 a) noexcept { return _mm512_srli_epi64(a, 32); }
inline words_64 differences(words_64 a, words_64 b, words_64 c) noexcept {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
inline words_64 beside(words_64 low, words_64 upper) noexcept {
    return _mm512_mask_blend_epi32(0xAAAA, low, _mm512_slli_epi64(upper, 32));
}
inline words_64 low_32(words_64 a, words_64 b) noexcept { return _mm512_unpacklo_epi32(a, b); }
inline words_64 high_32(words_64 a, words_64 b) noexcept { return _mm512_unpackhi_epi32(a, b); }
inline words_64 low_64(words_64 a, words_64 b) noexcept { return _mm512_unpacklo_epi64(a, b); }
inline words_64 high_64(words_64 a, words_64 b) noexcept { return _mm512_unpackhi_epi64(a, b); }
inline void store_words(std::uint32_t* to, words_64 a) noexcept { _mm512_storeu_si512(to, a); }
// With 32-bit numbers of both side by side, element 4 l + e has block 4 e + l, so that the transposition stays within
// groups of four words.
inline words_64 even_blocks() noexcept { return _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11); }
inline words_64 odd_blocks() noexcept { return _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15); }
#else
using words_64 = __m256i;
inline words_64 all_64(std::uint64_t number) noexcept { return _mm256_set1_epi64x(static_cast<long long>(number)); }
inline words_64 plus(words_64 a, words_64 b) noexcept { return _mm256_add_epi64(a, b); }
inline words_64 times(words_64 a, words_64 b) noexcept { return _mm256_mul_epu32(a, b); }
inline words_64 upper_halves(words_64 a) noexcept { return _mm256_srli_epi64(a, 32); }
inline words_64 differences(words_64 a, words_64 b, words_64 c) noexcept {
    return _mm256_xor_si256(a, _mm256_xor_si256(b, c));
}
inline words_64 beside(words_64 low, words_64 upper) noexcept {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(upper, 32), 0xAA);
}
inline words_64 low_32(words_64 a, words_64 b) noexcept { return _mm256_unpacklo_epi32(a, b); }
inline words_64 high_32(words_64 a, words_64 b) noexcept { return _mm256_unpackhi_epi32(a, b); }
inline words_64 low_64(words_64 a, words_64 b) noexcept { return _mm256_unpacklo_epi64(a, b); }
inline words_64 high_64(words_64 a, words_64 b) noexcept { return _mm256_unpackhi_epi64(a, b); }
inline void store_words(std::uint32_t* to, words_64 a) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a);
}
inline words_64 even_blocks() noexcept { return _mm256_setr_epi64x(0, 4, 1, 5); }  // element 4 l + e: block 2 e + l
inline words_64 odd_blocks() noexcept { return _mm256_setr_epi64x(2, 6, 3, 7); }
#endif

/// Counters, each number in the lower half of 64 bits; what is in the upper half does not matter.
struct philox_counters {
    words_64 c0, c1, c2, c3;

    void round(words_64 first, words_64 second, words_64 key0, words_64 key1) noexcept {
        const words_64 a = times(c0, first), b = times(c2, second);
        c0 = differences(upper_halves(b), c1, key0);
        c2 = differences(upper_halves(a), c3, key1);
        c1 = b;
        c3 = a;
    }
};

/// The keys of all rounds.
struct philox_keys {
    words_64 of[10][2];
    explicit philox_keys(const core::random_stream::address& from) noexcept {
        std::uint32_t key0 = from.key[0], key1 = from.key[1];
        for (auto& round : of) {
            round[0] = all_64(key0);
            round[1] = all_64(key1);
            key0 += 0x9E3779B9U;
            key1 += 0xBB67AE85U;
        }
    }
};

/// Blocks of four words, computed side by side.
inline constexpr std::size_t philox_blocks = sizeof(words_64) / 4;

struct philox_group {
    philox_counters even, odd;

    /// The lower half of the blocks' numbers does not overflow.
    philox_group(const core::random_stream::address& from, std::uint64_t block) noexcept {
        const words_64 base = all_64(block & 0xFFFFFFFFU), high = all_64(block >> 32);
        const words_64 step = all_64(from.step), series = all_64(from.series);
        even = {plus(base, even_blocks()), high, step, series};
        odd = {plus(base, odd_blocks()), high, step, series};
    }
    void round(words_64 first, words_64 second, const words_64 (&key)[2]) noexcept {
        even.round(first, second, key[0], key[1]);
        odd.round(first, second, key[0], key[1]);
    }
    void store(std::uint32_t* to) const noexcept {
        const words_64 c0 = beside(even.c0, odd.c0), c1 = beside(even.c1, odd.c1);
        const words_64 c2 = beside(even.c2, odd.c2), c3 = beside(even.c3, odd.c3);
        const words_64 low01 = low_32(c0, c1), high01 = high_32(c0, c1);
        const words_64 low23 = low_32(c2, c3), high23 = high_32(c2, c3);
        store_words(to, low_64(low01, low23));
        store_words(to + philox_blocks, high_64(low01, low23));
        store_words(to + 2 * philox_blocks, low_64(high01, high23));
        store_words(to + 3 * philox_blocks, high_64(high01, high23));
    }
};

/// Two groups at once, where there are registers for both: what one waits for, the other fills.
inline constexpr std::size_t philox_groups = registers >= 32 ? 2 : 1;

template <std::size_t Groups>
inline void philox_words(const core::random_stream::address& from, const philox_keys& keys, std::uint64_t block,
                         std::uint32_t* to) noexcept {
    static_assert(Groups == 1 || Groups == 2);
    const words_64 first = all_64(0xD2511F53U), second = all_64(0xCD9E8D57U);
    philox_group one{from, block};
    if constexpr (Groups == 1) {
        for (const auto& key : keys.of) one.round(first, second, key);
    } else {
        philox_group other{from, block + philox_blocks};
        for (const auto& key : keys.of) one.round(first, second, key), other.round(first, second, key);
        other.store(to + 4 * philox_blocks);
    }
    one.store(to);
}

}  // namespace detail
#endif

/// Words first .. first + out.size() - 1.
inline void random_words(const core::random_stream& random, std::uint64_t first,
                         std::span<std::uint32_t> out) noexcept {
    std::size_t done = 0;
#if defined(__AVX2__)
    constexpr std::uint64_t end = std::uint64_t{1} << 32;
    const auto from = random.location();
    if (first % 4 == 0 && out.size() >= 4 * detail::philox_blocks) {
        const detail::philox_keys keys{from};
        const auto in_groups = [&keys, first, from, out]<std::size_t Groups>(
                                   std::integral_constant<std::size_t, Groups>, std::size_t at) {
            constexpr std::size_t blocks = Groups * detail::philox_blocks, words = 4 * blocks;
            for (; at + words <= out.size(); at += words) {
                const std::uint64_t block = from.first + (first + at) / 4;
                if (block % end + blocks > end) break;
                detail::philox_words<Groups>(from, keys, block, out.data() + at);
            }
            return at;
        };
        done = in_groups(std::integral_constant<std::size_t, detail::philox_groups>{}, done);
        if constexpr (detail::philox_groups > 1) done = in_groups(std::integral_constant<std::size_t, 1>{}, done);
    }
#endif
    random.words(first + done, out.subspan(done));
}

}  // namespace lockstep::simd
