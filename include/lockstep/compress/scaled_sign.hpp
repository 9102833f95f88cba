// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Signs with one scale, the mean magnitude: models Compressor.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/packing.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/bits.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::compress {

/// EF-signSGD (Karimireddy et al., ICML 2019), the compressor of it: decoded_i = s sgn(p_i) with s = |p|_1 / n, sgn(0)
/// = 1. A contraction: |p - decoded|_2^2 = (1 - |p|_1^2 / (n |p|_2^2)) |p|_2^2. Biased: signs alone have convex
/// counter-examples, so it wants error_feedback around it. Message: s, then ceil(n / 8) bytes of signs; a number that
/// is not finite makes s so. |p|_1: sums of 64 numbers in T in each way of a vector, added in order in double. Two
/// passes over p to encode.
struct scaled_sign {
    static constexpr std::string_view name = "scaled_sign";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const noexcept {
        return n == 0 ? 0 : sizeof(T) + packed_bytes(n, 1);
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t n = in.values.size();
        if (n == 0) return 0;
        const auto scale = static_cast<T>(sum_of_magnitudes(in.values) / static_cast<double>(n));
        std::memcpy(in.message.data(), &scale, sizeof(T));
        simd::store_signs(in.values.data(), n, in.message.data() + sizeof(T));
        return max_bytes<T>(n);
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        if (sum.empty()) return;
        T size;
        std::memcpy(&size, message.data(), sizeof(T));
        simd::add_chosen(message.data() + sizeof(T), 0, scale, size, -size, sum.data(), sum.size());
    }

private:
    template <class T>
    [[nodiscard]] static double sum_of_magnitudes(std::span<const T> values) noexcept {
        constexpr std::size_t block = 64 * simd::width<T>;  // longer sums overflow at smaller numbers
        double out = 0;
        for (std::size_t first = 0; first < values.size(); first += block) {
            simd::batch<T> sum(T{0});
            simd::map(
                std::min(block, values.size() - first), [&](const simd::batch<T>& value) { sum = sum + abs(value); },
                values.data() + first);
            std::array<T, simd::width<T>> ways;
            simd::store(ways.data(), sum);
            for (const T way : ways) out += static_cast<double>(way);
        }
        return out;
    }
};

static_assert(Compressor<scaled_sign> && Compressor<scaled_sign, double>);

}  // namespace lockstep::compress
