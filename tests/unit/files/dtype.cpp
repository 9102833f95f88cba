// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/dtype.hpp"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::files {
namespace {

static_assert(dtype_of<float> == dtype::f32 && dtype_of<double> == dtype::f64 && dtype_of<bool> == dtype::boolean);
static_assert(dtype_of<std::int8_t> == dtype::i8 && dtype_of<std::uint8_t> == dtype::u8);
static_assert(dtype_of<std::int16_t> == dtype::i16 && dtype_of<std::uint16_t> == dtype::u16);
static_assert(dtype_of<std::int32_t> == dtype::i32 && dtype_of<std::uint32_t> == dtype::u32);
static_assert(dtype_of<long> == dtype::i64 && dtype_of<unsigned long long> == dtype::u64);
static_assert(name_of(dtype::bf16) == "BF16" && size_of(dtype::bf16) == 2 && name_of(dtype::f64) == "F64");

TEST_CASE("files/dtype: every number of 16 bits, worked out from its fields", "[files]") {
    std::size_t wrong = 0;
    for (std::uint32_t word = 0; word < 65'536; ++word) {
        const double sign = (word & 0x8000) != 0 ? -1 : 1;
        const auto value = [&](int bits_of_exponent, int bits_of_fraction) {
            const int bias = (1 << (bits_of_exponent - 1)) - 1;
            const int exponent = static_cast<int>(word >> bits_of_fraction) & ((1 << bits_of_exponent) - 1);
            const double fraction = std::ldexp(word & ((1U << bits_of_fraction) - 1), -bits_of_fraction);
            if (exponent == 2 * bias + 1)
                return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
            return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                                 : sign * std::ldexp(1 + fraction, exponent - bias);
        };
        const auto same = [](double right, float found) {
            return std::isnan(right)
                       ? std::isnan(found)
                       : right == static_cast<double>(found) && std::signbit(right) == std::signbit(found);
        };
        wrong += !same(value(5, 10), half_to_float(static_cast<std::uint16_t>(word)));
        wrong += !same(value(8, 7), brain_to_float(static_cast<std::uint16_t>(word)));
    }
    CHECK(wrong == 0);
}

template <class From, class To>
void check_conversion(std::vector<From> numbers) {
    std::vector<std::byte> bytes(1 + numbers.size() * sizeof(From));  // at an odd address
    std::memcpy(bytes.data() + 1, numbers.data(), bytes.size() - 1);
    std::vector<To> found(numbers.size(), To{99});
    convert<To>(dtype_of<From>, bytes.data() + 1, found);
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(found[i] == static_cast<To>(numbers[i]));
}

TEST_CASE("files/dtype: numbers are converted from any address", "[files]") {
    check_conversion<std::uint8_t, float>({0, 1, 255});
    check_conversion<std::int8_t, double>({-128, 0, 127});
    check_conversion<std::uint16_t, float>({0, 65535});
    check_conversion<std::int16_t, std::int64_t>({-32768, 32767});
    check_conversion<std::uint32_t, double>({0, 4294967295U});
    check_conversion<std::int32_t, std::int64_t>({-5, 2147483647});
    check_conversion<std::uint64_t, std::int64_t>({0, 18446744073709551615ULL});
    check_conversion<std::int64_t, float>({-1, 123456789});
    check_conversion<float, double>({0.1F, -3.0F});
    check_conversion<double, float>({0.1, 1e300, -3.0});
    std::array<float, 2> found{};
    const std::array<std::uint16_t, 2> halves{0x3c00, 0xc000}, brains{0x3f80, 0xc000};
    convert<float>(dtype::f16, std::as_bytes(std::span{halves}).data(), found);
    CHECK(found == std::array{1.0F, -2.0F});
    convert<float>(dtype::bf16, std::as_bytes(std::span{brains}).data(), found);
    CHECK(found == std::array{1.0F, -2.0F});
}

TEST_CASE("files/dtype: bytes of a shape do not wrap", "[files]") {
    std::uint64_t bytes = 0;
    const auto count = [&](std::vector<std::size_t> shape, dtype type) { return bytes_of(shape, type, bytes); };
    CHECK((count({}, dtype::f64) && bytes == 8));
    CHECK((count({3, 4}, dtype::i16) && bytes == 24));
    CHECK((count({std::size_t{1} << 62}, dtype::u8) && bytes == std::uint64_t{1} << 62));
    CHECK(!count({std::size_t{1} << 63}, dtype::u8));
    CHECK(!count({std::size_t{1} << 32, std::size_t{1} << 32}, dtype::u8));
    CHECK(!count({std::size_t{1} << 62}, dtype::f32));
    CHECK((count({std::size_t{1} << 63, 4, 0}, dtype::f32) && bytes == 0));
}

}  // namespace
}  // namespace lockstep::files
