// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Buckets of numbers as whole multiples of a step, rounded stochastically: what quantize and qsgd share.
// Tested by tests/unit/compress/quantize.cpp, qsgd.cpp.
// Tested by tests/unit/compress/qsgd.cpp.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/draws.hpp"
#include "lockstep/compress/parts/packing.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/bytes.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::compress::level_codes {

/// Values coded at a time: a multiple of 8, so that each chunk starts at a whole byte.
inline constexpr std::size_t chunk = 256;

/// The chance of what is certain.
inline constexpr float certain = 0x1p31F;

/// From this magnitude on a bucket decodes to NaN.
template <class T>
inline constexpr T too_large = std::is_same_v<T, float> ? T{0x1p126F} : static_cast<T>(0x1p1022);

/// The largest magnitude of a bucket; NaN if it is to decode to NaN.
template <class T>
[[nodiscard]] T largest_of(std::span<const T> values) noexcept {
#if defined(__AVX512F__)
    // The bits of magnitudes are ordered as the magnitudes are, infinity and then NaN above all.
    if constexpr (std::is_same_v<T, float>) {
        const __m512i size = _mm512_set1_epi32(0x7fffffff);
        __m512i most = _mm512_setzero_si512(), other = most;
        std::size_t i = 0;
        for (; i + 32 <= values.size(); i += 32) {
            most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(values.data() + i), size));
            other = _mm512_max_epu32(other, _mm512_and_si512(_mm512_loadu_si512(values.data() + i + 16), size));
        }
        for (; i < values.size(); i += 16) {
            const std::size_t count = std::min<std::size_t>(16, values.size() - i);
            const auto here = static_cast<__mmask16>((1U << count) - 1);
            most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_maskz_loadu_epi32(here, values.data() + i), size));
        }
        const auto largest =
            std::bit_cast<float>(static_cast<std::uint32_t>(_mm512_reduce_max_epu32(_mm512_max_epu32(most, other))));
        return largest < too_large<float> ? largest : std::numeric_limits<float>::quiet_NaN();
    }
#elif defined(__AVX2__)
    if constexpr (std::is_same_v<T, float>) {
        const __m256i size = _mm256_set1_epi32(0x7fffffff);
        const auto load = [&](std::size_t i) {
            return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values.data() + i)), size);
        };
        __m256i most = _mm256_setzero_si256(), other = most;
        std::size_t i = 0;
        for (; i + 16 <= values.size(); i += 16) {
            most = _mm256_max_epu32(most, load(i));
            other = _mm256_max_epu32(other, load(i + 8));
        }
        std::array<std::uint32_t, 8> ways;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(ways.data()), _mm256_max_epu32(most, other));
        std::uint32_t bits = *std::max_element(ways.begin(), ways.end());
        for (; i < values.size(); ++i) bits = std::max(bits, std::bit_cast<std::uint32_t>(std::abs(values[i])));
        const auto largest = std::bit_cast<float>(bits);
        return largest < too_large<float> ? largest : std::numeric_limits<float>::quiet_NaN();
    }
#endif
    using vector = simd::batch<T>;
    vector most(T{0});
    vector poison(T{0});
    simd::map(
        values.size(),
        [&](const vector& value) {
            most = max(most, abs(value));
            poison = poison + (value - value);
        },
        values.data());
    std::array<T, simd::width<T>> elements, poisons;
    simd::store(elements.data(), most);
    simd::store(poisons.data(), poison);
    const T largest = *std::max_element(elements.begin(), elements.end());
    const bool finite = std::none_of(poisons.begin(), poisons.end(), [](T element) { return std::isnan(element); });
    return finite && largest < too_large<T> ? largest : std::numeric_limits<T>::quiet_NaN();
}

/// The Euclidean norm, at least the largest magnitude; NaN if the bucket is to decode to NaN. Squares are added in
/// double: sixteen sums of every sixteenth number, then these in pairs.
template <class T>
[[nodiscard]] T norm_of(std::span<const T> values) noexcept {
    const T largest = largest_of(values);
    if (!(largest > 0)) return largest;
    constexpr std::size_t ways = 16;
    // By a power of two, so that no square overflows or loses bits.
    const double shrink = std::ldexp(1.0, -std::ilogb(largest));
    std::array<double, ways> sums{};
    const std::size_t whole = values.size() / ways * ways;
    for (std::size_t i = 0; i < whole; i += ways)
        for (std::size_t way = 0; way < ways; ++way) {
            const double value = static_cast<double>(values[i + way]) * shrink;
            sums[way] += value * value;
        }
    for (std::size_t i = whole; i < values.size(); ++i) {
        const double value = static_cast<double>(values[i]) * shrink;
        sums[i - whole] += value * value;
    }
    for (std::size_t rest = ways / 2; rest > 0; rest /= 2)
        for (std::size_t way = 0; way < rest; ++way) sums[way] += sums[way + rest];
    const T norm = std::max(largest, static_cast<T>(std::sqrt(sums[0]) / shrink));
    return norm < too_large<T> ? norm : std::numeric_limits<T>::quiet_NaN();
}

/// 2^(e - 22) for float, 2^(e - 51) for double, where 2^e <= scale < 2^(e+1); at least the smallest normal number.
template <class T>
[[nodiscard]] T grid_of(T scale) noexcept {
    using limits = std::numeric_limits<T>;
    return std::ldexp(T{1}, std::max(std::ilogb(scale) - (limits::digits - 2), limits::min_exponent - 1));
}

/// The smallest whole number of grids with s x step >= scale. 0 for 0, NaN for NaN.
template <class T>
[[nodiscard]] T step_of(T scale, std::size_t s) noexcept {
    if (!(scale > 0)) return scale;
    const T grid = grid_of(scale);
    const auto grids = static_cast<std::uint64_t>(std::ceil(scale / grid));
    return static_cast<T>((grids + s - 1) / s) * grid;
}

/// Rounds each value to the nearest multiple of the grid.
template <class T>
void snap(std::span<T> bucket, T scale) noexcept {
    if (!(scale > 0)) return;
    const simd::batch<T> grid(grid_of(scale));
    const simd::batch<T> per_grid(1 / grid_of(scale));
    simd::map(
        bucket.size(), [&](auto& value) { value = nearbyint(value * per_grid) * grid; }, bucket.data());
}

/// code = level + s, with |level| = |value| / step rounded up where `draws` says so of its fraction, else down. Element
/// 0 is number `at` of the draws.
template <class T, class D>
void write_codes(std::span<const T> values, T step, std::size_t s, const D& draws, std::size_t at,
                 std::uint8_t* codes) noexcept {
    const int zero = static_cast<int>(s);
    if (!(step > 0)) {
        std::fill_n(codes, values.size(), static_cast<std::uint8_t>(zero));
        return;
    }
    std::size_t i = 0;
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float>)
        for (; i + 16 <= values.size(); i += 16) {
            const __m512 value = _mm512_loadu_ps(values.data() + i);
            const __m512 x = _mm512_div_ps(_mm512_abs_ps(value), _mm512_set1_ps(step));
            const __m512i below = _mm512_cvttps_epi32(x);
            const __m512 fraction = _mm512_sub_ps(x, _mm512_cvtepi32_ps(below));
            const __mmask16 up =
                draws.up(at + i, _mm512_cvttps_epi32(_mm512_mul_ps(fraction, _mm512_set1_ps(certain))));
            const __m512i level = _mm512_mask_add_epi32(below, up, below, _mm512_set1_epi32(1));
            const __m512i base = _mm512_set1_epi32(zero);
            const __mmask16 negative = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_LT_OQ);
            const __m512i code = _mm512_mask_sub_epi32(_mm512_add_epi32(base, level), negative, base, level);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(code));
        }
#elif defined(__AVX2__)
    if constexpr (std::is_same_v<T, float>) {
        const __m256 size = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
        const __m256i base = _mm256_set1_epi32(zero);
        const auto code = [&](std::size_t first) {
            const __m256 value = _mm256_loadu_ps(values.data() + first);
            const __m256 x = _mm256_div_ps(_mm256_and_ps(value, size), _mm256_set1_ps(step));
            const __m256i below = _mm256_cvttps_epi32(x);
            const __m256 fraction = _mm256_sub_ps(x, _mm256_cvtepi32_ps(below));
            const __m256i up =
                draws.up(at + first, _mm256_cvttps_epi32(_mm256_mul_ps(fraction, _mm256_set1_ps(certain))));
            const __m256i level = _mm256_sub_epi32(below, up);
            const __m256i negative = _mm256_castps_si256(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_LT_OQ));
            return _mm256_add_epi32(base, _mm256_sub_epi32(_mm256_xor_si256(level, negative), negative));
        };
        for (; i + 16 <= values.size(); i += 16) {
            // Within halves of vectors: 0 .. 3, 8 .. 11 and 4 .. 7, 12 .. 15.
            const __m256i pairs = _mm256_packs_epi32(code(i), code(i + 8));
            const __m256i ordered = _mm256_permute4x64_epi64(pairs, 0xD8);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                             _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
        }
    }
#endif
    for (; i < values.size(); ++i) {
        const T x = std::abs(values[i]) / step;
        const int below = static_cast<int>(x);
        const T fraction = x - static_cast<T>(below);
        const int level =
            below + (draws.up(at + i, static_cast<std::int32_t>(fraction * static_cast<T>(certain))) ? 1 : 0);
        codes[i] = static_cast<std::uint8_t>(values[i] < 0 ? zero - level : zero + level);
    }
}

/// sum += scale x (code - s) x step.
template <class T>
void add_codes(const std::uint8_t* codes, std::size_t s, T step, T scale, std::span<T> sum) noexcept {
    using vector = simd::batch<T>;
    const vector zero(static_cast<T>(s)), factor(scale), size(step);
    std::size_t i = 0;
    for (; i + simd::width<T> <= sum.size(); i += simd::width<T>) {
        const vector value = (simd::load_bytes<T>(codes + i) - zero) * size;
        simd::store(sum.data() + i, simd::fma(factor, value, simd::load(sum.data() + i)));
    }
    if (i < sum.size()) {
        std::array<std::uint8_t, simd::width<T>> rest{};
        std::copy_n(codes + i, sum.size() - i, rest.begin());
        const vector value = (simd::load_bytes<T>(rest.data()) - zero) * size;
        simd::store_first(sum.data() + i, simd::fma(factor, value, simd::load_first(sum.data() + i, sum.size() - i)),
                          sum.size() - i);
    }
}

/// How the numbers of a message are cut and coded: 2 s + 1 levels in `bits` bits.
struct format {
    std::size_t s = 1;
    std::size_t bits = 2;
    std::size_t bucket = 512;
    bool stochastic = true;

    [[nodiscard]] constexpr std::size_t buckets(std::size_t n) const noexcept {
        return n / bucket + (n % bucket != 0 ? 1 : 0);
    }
    template <class T>
    [[nodiscard]] constexpr std::size_t bytes(std::size_t n) const noexcept {
        return buckets(n) * sizeof(T) + packed_bytes(n, bits);
    }

    /// f(what decides which numbers are rounded up).
    template <class F>
    auto with_draws(const F& f) const noexcept {
        if (stochastic) {
            stochastic_draws<chunk> draws;
            return f(draws);
        }
        nearest_draws draws;
        return f(draws);
    }

    /// The steps of all buckets, then packed codes. scale_of(bucket) is what s steps have to reach. Returns bytes().
    template <class T, class F>
    std::size_t encode(const encoding<T>& in, const F& scale_of) const noexcept {
        const std::size_t n = in.values.size();
        std::byte* const steps = in.message.data();
        std::byte* const packed = steps + buckets(n) * sizeof(T);
        with_draws([&](auto& draws) {
            std::array<std::uint8_t, chunk> codes;
            T step{};
            for (std::size_t first = 0; first < n; first += chunk) {
                const std::size_t last = std::min(n, first + chunk);
                draws.fill(in.random, first, last - first);
                for (std::size_t at = first; at < last;) {
                    if (at % bucket == 0) {
                        step = step_of(scale_of(in.values.subspan(at, std::min(bucket, n - at))), s);
                        std::memcpy(steps + at / bucket * sizeof(T), &step, sizeof(T));
                    }
                    const std::size_t end = end_of_run(at, last);
                    write_codes(in.values.subspan(at, end - at), step, s, draws, at - first,
                                codes.data() + (at - first));
                    at = end;
                }
                pack(std::span<const std::uint8_t>{codes}.first(last - first), bits, packed + first / 8 * bits);
            }
        });
        return bytes<T>(n);
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        const std::size_t n = sum.size();
        const std::byte* const packed = message.data() + buckets(n) * sizeof(T);
        std::array<std::uint8_t, chunk> codes;
        for (std::size_t first = 0; first < n; first += chunk) {
            const std::size_t last = std::min(n, first + chunk);
            unpack(packed + first / 8 * bits, bits, std::span{codes}.first(last - first));
            for (std::size_t at = first; at < last;) {
                T step;
                std::memcpy(&step, message.data() + at / bucket * sizeof(T), sizeof(T));
                const std::size_t end = end_of_run(at, last);
                add_codes(codes.data() + (at - first), s, step, scale, sum.subspan(at, end - at));
                at = end;
            }
        }
    }

    /// Where the bucket of element `at` ends, or `last` if that comes first.
    [[nodiscard]] constexpr std::size_t end_of_run(std::size_t at, std::size_t last) const noexcept {
        const std::size_t left = bucket - at % bucket;
        return left < last - at ? at + left : last;
    }
};

}  // namespace lockstep::compress::level_codes
