// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Streams of bits, and the omega code of Elias for whole numbers: small ones are short.
// Tested by tests/unit/compress/qsgd.cpp.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::compress {

/// The first of `length` bits is the lowest.
struct bit_string {
    std::uint64_t bits = 0;
    unsigned length = 0;
};

/// Elias omega (1975): 1 is "0", 2 "10 0", 3 "11 0", 4 "10 100 0", .. : the binary digits of k, after those of their
/// number - 1, and so on down to 1; then a zero. 1 <= k < 2^32: at most 44 bits.
[[nodiscard]] constexpr bit_string omega_code(std::uint32_t k) noexcept {
    bit_string out{0, 1};
    while (k > 1) {
        const auto digits = static_cast<unsigned>(std::bit_width(k));
        out.bits <<= digits;
        for (unsigned at = 0; at < digits; ++at)
            out.bits |= std::uint64_t{k >> (digits - 1 - at) & 1U} << at;  // the highest digit comes first
        out.length += digits;
        k = digits - 1;
    }
    return out;
}

namespace detail {
/// For numbers below 256, which most are.
inline constexpr auto short_codes = [] {
    std::array<bit_string, 256> out{};
    for (std::uint32_t k = 1; k < 256; ++k) out[k] = omega_code(k);
    return out;
}();
}  // namespace detail

[[nodiscard]] constexpr bit_string elias_omega(std::uint32_t k) noexcept {
    return k < 256 ? detail::short_codes[k] : omega_code(k);
}

/// Appends bits to bytes. The caller sees to the room; finish() writes the last, partial byte.
class bit_writer {
public:
    explicit bit_writer(std::byte* to) noexcept : at_{to} {}
    /// At most 56 bits.
    void put(bit_string what) noexcept {
        held_ |= what.bits << count_;
        count_ += what.length;
        for (; count_ >= 8; count_ -= 8, held_ >>= 8) *at_++ = static_cast<std::byte>(held_);
    }
    /// Where the next byte would be.
    std::byte* finish() noexcept {
        if (count_ > 0) *at_++ = static_cast<std::byte>(held_);
        held_ = 0;
        count_ = 0;
        return at_;
    }

private:
    std::byte* at_;
    std::uint64_t held_ = 0;
    unsigned count_ = 0;  // below 8 between calls
};

/// Reads what a bit_writer wrote. After the end there are zeros: no byte outside is touched, whatever the bits say.
class bit_reader {
public:
    explicit bit_reader(std::span<const std::byte> from) noexcept : from_{from} {}

    /// At most 32 bits.
    [[nodiscard]] std::uint32_t take(unsigned length) noexcept {
        while (count_ < length) {
            const std::uint64_t next = at_ < from_.size() ? std::to_integer<std::uint64_t>(from_[at_++]) : 0;
            held_ |= next << count_;
            count_ += 8;
        }
        const auto out = static_cast<std::uint32_t>(held_ & ((std::uint64_t{1} << length) - 1));
        held_ >>= length;
        count_ -= length;
        return out;
    }
    /// A number of elias_omega; 0 for bits that are none.
    [[nodiscard]] std::uint32_t omega() noexcept {
        std::uint32_t k = 1;
        while (take(1) != 0) {
            if (k > 31) return 0;
            std::uint32_t next = 1;
            for (unsigned digit = 0, digits = k; digit < digits; ++digit) next = next << 1 | take(1);
            k = next;
        }
        return k;
    }

private:
    std::span<const std::byte> from_;
    std::size_t at_ = 0;
    std::uint64_t held_ = 0;
    unsigned count_ = 0;
};

}  // namespace lockstep::compress
