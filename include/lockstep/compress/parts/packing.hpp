// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Small whole numbers at b bits each, one directly after the other: eight of them are b bytes.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/simd/batch.hpp"

namespace lockstep::compress {

static_assert(std::endian::native == std::endian::little,
              "lockstep: messages of packed bits are little-endian; port packing.hpp");

/// Bytes for n numbers of `bits` bits, 1 <= bits <= 8.
[[nodiscard]] constexpr std::size_t packed_bytes(std::size_t n, std::size_t bits) noexcept {
    return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

namespace detail {

/// Calls f with the number of bits as a constant: shifts by constants are several times faster.
template <class F>
inline void with_bits(std::size_t bits, F&& f) noexcept {
    [&]<std::size_t... Less>(std::index_sequence<Less...>) {
        ((bits == Less + 1 ? f(std::integral_constant<std::size_t, Less + 1>{}) : void()), ...);
    }
    (std::make_index_sequence<8>{});
}

/// Of each byte of eight.
template <std::size_t Bits>
inline constexpr std::uint64_t low_bits = ((std::uint64_t{1} << Bits) - 1) * 0x0101010101010101ULL;

}  // namespace detail

/// Number i occupies bits i b .. i b + b - 1 of the output, lowest bit of lowest byte first. Each code is below 2^bits.
inline void pack(std::span<const std::uint8_t> codes, std::size_t bits, std::byte* out) noexcept {
    detail::with_bits(bits, [&]<std::size_t Bits>(std::integral_constant<std::size_t, Bits>) {
        const auto put = [&](std::size_t first, std::size_t count) {
            std::uint64_t group = 0;
#if defined(__BMI2__)
            std::memcpy(&group, codes.data() + first, count);
            group = _pext_u64(group, detail::low_bits<Bits>);
#else
            for (std::size_t i = 0; i < count; ++i) group |= std::uint64_t{codes[first + i]} << (i * Bits);
#endif
            std::memcpy(out + first / 8 * Bits, &group, count == 8 ? Bits : packed_bytes(count, Bits));
        };
        std::size_t first = 0;
        for (; first + 8 <= codes.size(); first += 8) put(first, 8);
        if (first < codes.size()) put(first, codes.size() - first);
    });
}

/// The inverse of `pack`.
inline void unpack(const std::byte* in, std::size_t bits, std::span<std::uint8_t> codes) noexcept {
    detail::with_bits(bits, [&]<std::size_t Bits>(std::integral_constant<std::size_t, Bits>) {
        const auto take = [&](std::size_t first, std::size_t count) {
            std::uint64_t group = 0;
            std::memcpy(&group, in + first / 8 * Bits, count == 8 ? Bits : packed_bytes(count, Bits));
#if defined(__BMI2__)
            group = _pdep_u64(group, detail::low_bits<Bits>);
            std::memcpy(codes.data() + first, &group, count);
#else
            for (std::size_t i = 0; i < count; ++i)
                codes[first + i] = static_cast<std::uint8_t>((group >> (i * Bits)) & ((1U << Bits) - 1));
#endif
        };
        std::size_t first = 0;
        for (; first + 8 <= codes.size(); first += 8) take(first, 8);
        if (first < codes.size()) take(first, codes.size() - first);
    });
}

}  // namespace lockstep::compress
