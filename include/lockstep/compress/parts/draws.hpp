// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What decides which of a message's numbers are rounded up.
// Tested by tests/unit/compress/quantize.cpp.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/core/random.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/random_words.hpp"

namespace lockstep::compress {

/// A chance is a whole number of 2^-31: `up(i, chance)` says whether element i is rounded up.
struct nearest_draws {
    void fill(const core::random_stream&, std::size_t, std::size_t) noexcept {}
    [[nodiscard]] bool up(std::size_t, std::int32_t chance) const noexcept { return chance > half; }
#if defined(__AVX512F__)
    /// Of 16 elements from i on.
    [[nodiscard]] __mmask16 up(std::size_t, __m512i chances) const noexcept {
        return _mm512_cmpgt_epi32_mask(chances, _mm512_set1_epi32(half));
    }
#elif defined(__AVX2__)
    /// Of 8 elements from i on: -1, or 0.
    [[nodiscard]] __m256i up(std::size_t, __m256i chances) const noexcept {
        return _mm256_cmpgt_epi32(chances, _mm256_set1_epi32(half));
    }
#endif

private:
    static constexpr std::int32_t half = std::int32_t{1} << 30;
};

/// Element i of a message is rounded up if a number of 31 random bits is below its chance. Its upper 16 bits are half
/// of a word: of word i / 2 of the stream, the lower half for an even i. They decide, but for one element in 65,536,
/// where they are those of the chance; then the upper 15 bits of word 2^48 + i do. So half of the words are drawn.
template <std::size_t Most>
class stochastic_draws {
public:
    /// What is asked for next: elements first .. first + count - 1, counted from `first`; count <= Most.
    void fill(const core::random_stream& random, std::size_t first, std::size_t count) noexcept {
        random_ = &random;
        first_ = first;
        odd_ = first % 2;
        simd::random_words(random, first / 2, std::span{words_}.first((odd_ + count + 1) / 2));
    }

    [[nodiscard]] bool up(std::size_t i, std::int32_t chance) const noexcept {
        const auto upper = static_cast<std::int32_t>(words_[(odd_ + i) / 2] >> (odd_ + i) % 2 * 16 & 0xFFFFU);
        return upper == chance >> 15 ? lower(i) < (chance & 0x7FFF) : upper < chance >> 15;
    }
#if defined(__AVX512F__)
    [[nodiscard]] __mmask16 up(std::size_t i, __m512i chances) const noexcept {
        const __m512i uppers = _mm512_cvtepu16_epi32(halves(i)), decisive = _mm512_srli_epi32(chances, 15);
        __mmask16 out = _mm512_cmplt_epi32_mask(uppers, decisive);
        unsigned open = _mm512_cmpeq_epi32_mask(uppers, decisive);
        if (open != 0) [[unlikely]] {
            std::array<std::int32_t, 16> each;
            _mm512_storeu_si512(each.data(), chances);
            for (; open != 0; open &= open - 1) {
                const auto lane = static_cast<unsigned>(std::countr_zero(open));
                if (up(i + lane, each[lane])) out = static_cast<__mmask16>(out | 1U << lane);
            }
        }
        return out;
    }
#elif defined(__AVX2__)
    [[nodiscard]] __m256i up(std::size_t i, __m256i chances) const noexcept {
        const __m256i uppers = _mm256_cvtepu16_epi32(halves(i)), decisive = _mm256_srli_epi32(chances, 15);
        const __m256i out = _mm256_cmpgt_epi32(decisive, uppers);
        const __m256i open = _mm256_cmpeq_epi32(decisive, uppers);
        if (_mm256_testz_si256(open, open) != 0) [[likely]]
            return out;
        std::array<std::int32_t, 8> each, ups;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(each.data()), chances);
        for (std::size_t lane = 0; lane < each.size(); ++lane) ups[lane] = up(i + lane, each[lane]) ? -1 : 0;
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ups.data()));
    }
#endif

private:
    [[nodiscard]] std::int32_t lower(std::size_t i) const noexcept {
        return static_cast<std::int32_t>(random_->word((std::uint64_t{1} << 48U) + first_ + i) >> 17);
    }
#if defined(__AVX512F__)
    [[nodiscard]] __m256i halves(std::size_t i) const noexcept {
        return _mm256_loadu_si256(
            reinterpret_cast<const __m256i*>(reinterpret_cast<const std::byte*>(words_.data()) + 2 * (odd_ + i)));
    }
#elif defined(__AVX2__)
    [[nodiscard]] __m128i halves(std::size_t i) const noexcept {
        return _mm_loadu_si128(
            reinterpret_cast<const __m128i*>(reinterpret_cast<const std::byte*>(words_.data()) + 2 * (odd_ + i)));
    }
#endif

    const core::random_stream* random_ = nullptr;
    std::size_t first_ = 0;
    std::size_t odd_ = 0;
    std::array<std::uint32_t, Most / 2 + 1> words_;
};

}  // namespace lockstep::compress
