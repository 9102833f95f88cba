// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A 64-bit hash of bytes: fingerprints of weights and of recipes. Not for adversaries.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"

namespace lockstep::core {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ULL;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

/// Order-dependent: hash(a, hash(b)) differs from hash(b, hash(a)). About 1 ns per 8 bytes.
[[nodiscard]] std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;

[[nodiscard]] inline std::uint64_t hash(std::string_view text, std::uint64_t seed = 0) noexcept {
    return hash(std::as_bytes(std::span{text}), seed);
}

/// Sixteen hexadecimal digits.
[[nodiscard]] std::string hexadecimal(std::uint64_t value);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
    std::uint64_t state = mix(seed + 0x9e3779b97f4a7c15ULL * (bytes.size() + 1));
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data() + at, 8);
        state = mix(state ^ word) + 0x9e3779b97f4a7c15ULL;
    }
    std::uint64_t rest = 0;
    if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
    return mix(state ^ rest);
}

LOCKSTEP_FUNCTION std::string hexadecimal(std::uint64_t value) {
    std::string out(16, '0');
    for (std::size_t i = 16; i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
    return out;
}

#endif

}  // namespace lockstep::core
