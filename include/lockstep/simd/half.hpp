// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Floating-point numbers of 16 bits: storage, casts and sums of arrays. Each sum is that of the floats, rounded once.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

namespace detail {

inline constexpr std::uint32_t float_infinity = 0x7f800000;

/// Without the instructions that the processor may have for it, the same bits.
[[nodiscard]] constexpr std::uint16_t to_float16(float from) noexcept {
    auto bits = std::bit_cast<std::uint32_t>(from);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    bits &= 0x7fffffffU;
    if (bits > float_infinity) return static_cast<std::uint16_t>(sign | 0x7e00U | (bits >> 13 & 0x3ffU));
    if (bits >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 2^16
    // Below 2^-14 the result is a multiple of 2^-24, which is the distance of floats above one half.
    if (bits < 0x38800000U)
        return static_cast<std::uint16_t>(
            sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5F) - 0x3f000000U));
    // A carry out of the mantissa is the next exponent, and out of the largest one infinity.
    bits += 0xc8000fffU + (bits >> 13 & 1U);
    return static_cast<std::uint16_t>(sign | bits >> 13);
}
[[nodiscard]] constexpr float from_float16(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16, rest = bits & 0x7fffU;
    if (rest > 0x7c00U) return std::bit_cast<float>(sign | 0x7fc00000U | rest << 13);
    if (rest == 0x7c00U) return std::bit_cast<float>(sign | float_infinity);
    if (rest < 0x400U) {
        const float size = static_cast<float>(rest) * 0x1p-24F;
        return sign == 0 ? size : -size;
    }
    return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000U));
}
/// Up with probability (from - the number below) / (their distance), to 2^-24 of it below 2^-14.
[[nodiscard]] constexpr std::uint16_t to_float16(float from, std::uint32_t word) noexcept {
    auto bits = std::bit_cast<std::uint32_t>(from);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    bits &= 0x7fffffffU;
    if (bits > float_infinity) return to_float16(from);
    if (bits >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
    if (bits < 0x38800000U) {
        const float steps = std::bit_cast<float>(bits) * 0x1p24F;
        const auto below = static_cast<std::uint32_t>(steps);
        const auto part = static_cast<std::uint32_t>((steps - static_cast<float>(below)) * 0x1p24F);
        return static_cast<std::uint16_t>(sign | (below + (word >> 8 < part ? 1U : 0U)));
    }
    return static_cast<std::uint16_t>(sign | (bits + (word >> 19) - 0x38000000U) >> 13);
}

[[nodiscard]] constexpr std::uint16_t to_bfloat16(float from) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(from);
    if ((bits & 0x7fffffffU) > float_infinity) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}
[[nodiscard]] constexpr float from_bfloat16(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
[[nodiscard]] constexpr std::uint16_t to_bfloat16(float from, std::uint32_t word) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(from);
    if ((bits & 0x7fffffffU) >= float_infinity) return to_bfloat16(from);
    return static_cast<std::uint16_t>((bits + (word >> 16)) >> 16);
}

/// Numbers that one instruction casts; without one, what the compiler unrolls.
#if defined(__AVX512F__)
inline constexpr std::size_t cast_width = 16;
#else
inline constexpr std::size_t cast_width = 8;
#endif

}  // namespace detail

/// IEEE 754 binary16: 11 bits of precision, normal from 2^-14 = 6.1e-5 to 65,504, multiples of 2^-24 = 6.0e-8 below.
struct float16 {
    std::uint16_t bits = 0;
    static constexpr std::string_view name = "half";

    constexpr float16() noexcept = default;
    /// To nearest, ties to even; from 65,520 on infinity. NaN stays NaN.
    constexpr explicit float16(float from) noexcept : bits{detail::to_float16(from)} {}
    /// Stochastic: the mean over words is `from`.
    constexpr float16(float from, std::uint32_t word) noexcept : bits{detail::to_float16(from, word)} {}
    constexpr explicit operator float() const noexcept { return detail::from_float16(bits); }
    constexpr bool operator==(const float16&) const noexcept = default;
    friend constexpr float16 operator+(float16 a, float16 b) noexcept {
        return float16{static_cast<float>(a) + static_cast<float>(b)};
    }

#if defined(__AVX512F__)
    using floats = __m512;
    [[nodiscard]] static floats load(const float16* from) noexcept {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    static void store(float16* to, floats from) noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                            _mm512_cvtps_ph(from, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    /// Stochastic.
    static void store(float16* to, floats from, const std::uint32_t* words) noexcept {
        const auto all = [](std::uint32_t one) { return _mm512_set1_epi32(static_cast<int>(one)); };
        const __m512i whole = _mm512_castps_si512(from), word = _mm512_loadu_si512(words);
        const __m512i sign = _mm512_srli_epi32(_mm512_and_si512(whole, all(0x80000000U)), 16);
        const __m512i size = _mm512_and_si512(whole, all(0x7fffffffU));
        const __m512i sum = _mm512_add_epi32(size, _mm512_srli_epi32(word, 19));
        __m512i out = _mm512_srli_epi32(_mm512_sub_epi32(sum, all(0x38000000U)), 13);
        // Multiples of 2^-24.
        const __m512 steps = _mm512_mul_ps(_mm512_castsi512_ps(size), _mm512_set1_ps(0x1p24F));
        const __mmask16 small = _mm512_cmplt_epu32_mask(size, all(0x38800000U));
        const __m512i below = _mm512_maskz_cvttps_epi32(small, steps);
        const __m512 part = _mm512_sub_ps(steps, _mm512_cvtepi32_ps(below));
        const __m512i bound = _mm512_maskz_cvttps_epi32(small, _mm512_mul_ps(part, _mm512_set1_ps(0x1p24F)));
        const __mmask16 up = _mm512_mask_cmplt_epu32_mask(small, _mm512_srli_epi32(word, 8), bound);
        out = _mm512_mask_mov_epi32(out, small, _mm512_mask_add_epi32(below, up, below, all(1)));
        out = _mm512_mask_mov_epi32(out, _mm512_cmpge_epu32_mask(size, all(0x47800000U)), all(0x7c00U));
        const __mmask16 none = _mm512_cmpgt_epu32_mask(size, all(detail::float_infinity));
        const __m512i quiet = _mm512_and_si512(_mm512_srli_epi32(size, 13), all(0x3ffU));
        out = _mm512_mask_or_epi32(out, none, quiet, all(0x7e00U));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_or_si512(out, sign)));
    }
#elif defined(__F16C__)
    using floats = __m256;
    [[nodiscard]] static floats load(const float16* from) noexcept {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static void store(float16* to, floats from) noexcept {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(from, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
};

/// The upper half of a float: 8 bits of precision, all of its range.
struct bfloat16 {
    std::uint16_t bits = 0;
    static constexpr std::string_view name = "bfloat16";

    constexpr bfloat16() noexcept = default;
    /// To nearest, ties to even; above the largest number and half a step infinity. NaN stays NaN.
    constexpr explicit bfloat16(float from) noexcept : bits{detail::to_bfloat16(from)} {}
    /// Stochastic: the mean over words is `from`.
    constexpr bfloat16(float from, std::uint32_t word) noexcept : bits{detail::to_bfloat16(from, word)} {}
    constexpr explicit operator float() const noexcept { return detail::from_bfloat16(bits); }
    constexpr bool operator==(const bfloat16&) const noexcept = default;
    friend constexpr bfloat16 operator+(bfloat16 a, bfloat16 b) noexcept {
        return bfloat16{static_cast<float>(a) + static_cast<float>(b)};
    }

    // The instructions of AVX512_BF16 take numbers below 2^-126 for zero, so these are whole-number ones.
#if defined(__AVX512F__)
    using floats = __m512;
    [[nodiscard]] static floats load(const bfloat16* from) noexcept {
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    }
    static void store(bfloat16* to, floats from) noexcept {
        const __m512i whole = _mm512_castps_si512(from), upper = _mm512_srli_epi32(whole, 16);
        const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
        const __m512i near =
            _mm512_srli_epi32(_mm512_add_epi32(whole, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
        const __mmask16 none = _mm512_cmp_ps_mask(from, from, _CMP_UNORD_Q);
        const __m512i out = _mm512_mask_or_epi32(near, none, upper, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(out));
    }
    /// Stochastic.
    static void store(bfloat16* to, floats from, const std::uint32_t* words) noexcept {
        const __m512i whole = _mm512_castps_si512(from), upper = _mm512_srli_epi32(whole, 16);
        const __m512i size = _mm512_and_si512(whole, _mm512_set1_epi32(0x7fffffff));
        const __m512i draw = _mm512_srli_epi32(_mm512_loadu_si512(words), 16);
        const __mmask16 finite = _mm512_cmplt_epu32_mask(size, _mm512_set1_epi32(0x7f800000));
        __m512i out = _mm512_mask_srli_epi32(upper, finite, _mm512_add_epi32(whole, draw), 16);
        const __mmask16 none = _mm512_cmp_ps_mask(from, from, _CMP_UNORD_Q);
        out = _mm512_mask_or_epi32(out, none, upper, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(out));
    }
#endif
};

namespace detail {
template <class Number>
inline constexpr bool has_casts = requires {
    typename Number::floats;
};
template <class Number>
inline constexpr bool has_stochastic_casts = requires(Number* to, const std::uint32_t* words) {
    Number::store(to, typename Number::floats{}, words);
};
}  // namespace detail

/// to = from, rounded to nearest.
template <class Number>
inline void narrow(std::span<const float> from, Number* to) noexcept {
    std::size_t at = 0;
    if constexpr (detail::has_casts<Number>)
        for (; at + detail::cast_width <= from.size(); at += detail::cast_width) {
            typename Number::floats values;
            __builtin_memcpy(&values, from.data() + at, sizeof(values));
            Number::store(to + at, values);
        }
    for (; at < from.size(); ++at) to[at] = Number{from[at]};
}
/// The same with stochastic rounding: a word for each number.
template <class Number>
inline void narrow(std::span<const float> from, std::span<const std::uint32_t> words, Number* to) noexcept {
    std::size_t at = 0;
    if constexpr (detail::has_stochastic_casts<Number>)
        for (; at + detail::cast_width <= from.size(); at += detail::cast_width) {
            typename Number::floats values;
            __builtin_memcpy(&values, from.data() + at, sizeof(values));
            Number::store(to + at, values, words.data() + at);
        }
    for (; at < from.size(); ++at) to[at] = Number{from[at], words[at]};
}
/// to = from, exactly.
template <class Number>
inline void widen(const Number* from, std::span<float> to) noexcept {
    std::size_t at = 0;
    if constexpr (detail::has_casts<Number>)
        for (; at + detail::cast_width <= to.size(); at += detail::cast_width) {
            const auto values = Number::load(from + at);
            __builtin_memcpy(to.data() + at, &values, sizeof(values));
        }
    for (; at < to.size(); ++at) to[at] = static_cast<float>(from[at]);
}

/// to = to + from, element by element, each sum rounded to nearest once: a float has more than twice the precision of
/// these numbers and two bits, so rounding the sum of floats again gives the sum of reals, rounded.
template <class Number>
inline void add_rounded(Number* to, const Number* from, std::size_t n) noexcept {
    std::size_t at = 0;
    if constexpr (detail::has_casts<Number>)
        for (; at + detail::cast_width <= n; at += detail::cast_width)
            Number::store(to + at, Number::load(to + at) + Number::load(from + at));
    for (; at < n; ++at) to[at] = to[at] + from[at];
}

/// A double as a float that rounds to 16 bits as the double does: the neighbour with an odd last bit where it is none.
[[nodiscard]] inline float round_to_odd(double from) noexcept {
    const auto near = static_cast<float>(from);
    const auto bits = std::bit_cast<std::uint32_t>(near);
    if (static_cast<double>(near) == from || from != from || (bits & 1U) != 0) return near;
    const double size = from < 0 ? -from : from, of_near = near < 0 ? -near : near;
    return std::bit_cast<float>(of_near > size ? bits - 1 : bits + 1);
}

}  // namespace lockstep::simd
