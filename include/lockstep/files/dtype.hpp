// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types of numbers in files, and their conversion to numbers of the program.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::files {

static_assert(std::endian::native == std::endian::little,
              "lockstep: files hold little-endian numbers, which are read and written as they lie in memory");

/// In the order of `dtypes`.
enum class dtype : std::uint8_t { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

/// What files call a type: safetensors, and .npy after the letter for the order of bytes ("": it has no such type).
struct dtype_names {
    std::string_view safetensors, npy;
    std::size_t size;
    bool is_whole;
};
inline constexpr std::array<dtype_names, 13> dtypes{{{"BOOL", "b1", 1, true},
                                                     {"U8", "u1", 1, true},
                                                     {"I8", "i1", 1, true},
                                                     {"U16", "u2", 2, true},
                                                     {"I16", "i2", 2, true},
                                                     {"F16", "f2", 2, false},
                                                     {"BF16", "", 2, false},
                                                     {"U32", "u4", 4, true},
                                                     {"I32", "i4", 4, true},
                                                     {"F32", "f4", 4, false},
                                                     {"U64", "u8", 8, true},
                                                     {"I64", "i8", 8, true},
                                                     {"F64", "f8", 8, false}}};

[[nodiscard]] constexpr const dtype_names& about(dtype type) noexcept { return dtypes[static_cast<std::size_t>(type)]; }
/// As safetensors call it: F32.
[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept { return about(type).safetensors; }
/// Bytes of one number.
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept { return about(type).size; }

/// The type of the program's numbers.
template <class T>
    requires std::is_arithmetic_v<T>
inline constexpr dtype dtype_of = [] {
    if constexpr (std::same_as<T, bool>) return dtype::boolean;
    for (std::size_t i = 1; i < dtypes.size(); ++i) {
        const char kind = std::floating_point<T> ? 'F' : std::is_signed_v<T> ? 'I' : 'U';
        if (dtypes[i].size == sizeof(T) && dtypes[i].safetensors[0] == kind) return static_cast<dtype>(i);
    }
}();

/// IEEE 754 binary16, exactly.
[[nodiscard]] constexpr float half_to_float(std::uint16_t half) noexcept {
    const std::uint32_t sign = (half & 0x8000U) << 16, rest = half & 0x7fffU;
    if (rest < 0x0400) return (sign != 0 ? -0x1p-24F : 0x1p-24F) * static_cast<float>(rest);  // no leading 1
    const std::uint32_t exponent = rest >= 0x7c00 ? 0x7f800000U : 112U << 23;
    return std::bit_cast<float>(sign | (rest >= 0x7c00 ? exponent | (rest & 0x3ffU) << 13 : exponent + (rest << 13)));
}
/// The upper half of a float.
[[nodiscard]] constexpr float brain_to_float(std::uint16_t half) noexcept {
    return std::bit_cast<float>(std::uint32_t{half} << 16);
}

namespace detail {

template <class From, class T, class Value>
void convert_each(const std::byte* from, std::span<T> to, Value value) noexcept {
    for (T& one : to) {
        From number;
        std::memcpy(&number, from, sizeof number);  // at any address
        one = static_cast<T>(value(number));
        from += sizeof number;
    }
}

}  // namespace detail

/// to.size() numbers of this type from `from` on, rounded to T. Whole numbers (T integral) come from whole numbers only
/// (about(type).is_whole), modulo 2^bits. Cost: one pass, as fast as memory for most types.
template <class T>
void convert(dtype type, const std::byte* from, std::span<T> to) noexcept {
    const auto as = [&]<class From>(From) {
        if constexpr (std::floating_point<T> || std::integral<From>)
            detail::convert_each<From>(from, to, [](From number) { return number; });
    };
    switch (type) {
        case dtype::boolean:
            return detail::convert_each<std::uint8_t>(from, to, [](std::uint8_t byte) { return byte != 0; });
        case dtype::u8:
            return as(std::uint8_t{});
        case dtype::i8:
            return as(std::int8_t{});
        case dtype::u16:
            return as(std::uint16_t{});
        case dtype::i16:
            return as(std::int16_t{});
        case dtype::u32:
            return as(std::uint32_t{});
        case dtype::i32:
            return as(std::int32_t{});
        case dtype::u64:
            return as(std::uint64_t{});
        case dtype::i64:
            return as(std::int64_t{});
        case dtype::f32:
            return as(float{});
        case dtype::f64:
            return as(double{});
        case dtype::f16:
            if constexpr (std::floating_point<T>) detail::convert_each<std::uint16_t>(from, to, half_to_float);
            return;
        case dtype::bf16:
            if constexpr (std::floating_point<T>) detail::convert_each<std::uint16_t>(from, to, brain_to_float);
            return;
    }
}

/// 3x4 for messages; "one number" for a shape without extents.
[[nodiscard, gnu::cold]] std::string shape_text(std::span<const std::size_t> shape);

/// Bytes of so many numbers; false: more than 63 bits.
[[nodiscard]] bool bytes_of(std::span<const std::size_t> shape, dtype type, std::uint64_t& bytes) noexcept;

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string shape_text(std::span<const std::size_t> shape) {
    std::string out;
    for (const std::size_t extent : shape) out += core::text(out.empty() ? "" : "x", extent);
    return out.empty() ? "one number" : out;
}

LOCKSTEP_FUNCTION bool bytes_of(std::span<const std::size_t> shape, dtype type, std::uint64_t& bytes) noexcept {
    bytes = size_of(type);
    bool is_empty = false, fits = true;
    for (const std::size_t extent : shape) {
        is_empty = is_empty || extent == 0;
        fits = fits && !__builtin_mul_overflow(bytes, std::uint64_t{extent}, &bytes) && bytes <= INT64_MAX;
    }
    if (is_empty) bytes = 0;
    return fits || is_empty;
}

#endif

}  // namespace lockstep::files
