// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/half.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "half_reference.hpp"
#include "lockstep/core/random.hpp"

namespace simd = lockstep::simd;

namespace {

template <class Number>
constexpr bool is_binary16 = std::is_same_v<Number, simd::float16>;

template <class Number>
bool is_nan(Number number) {
    return std::isnan(static_cast<float>(number));
}
template <class Number>
Number of_bits(std::size_t bits) {
    Number out;
    out.bits = static_cast<std::uint16_t>(bits);
    return out;
}
/// The number below a positive one, and the one above.
template <class Number>
std::pair<float, float> neighbours(float value) {
    const Number near{value};
    const auto at = static_cast<float>(near);
    if (at <= value) return {at, static_cast<float>(of_bits<Number>(near.bits + 1U))};
    return {static_cast<float>(of_bits<Number>(near.bits - 1U)), at};
}

}  // namespace

TEMPLATE_TEST_CASE("simd/half: rounds as NumPy and exact fractions do, alone and in arrays", "[simd]", simd::float16,
                   simd::bfloat16) {
    const auto& expected = is_binary16<TestType> ? reference::float16 : reference::bfloat16;
    const std::size_t n = reference::floats.size();
    REQUIRE(n == expected.size());
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = std::bit_cast<float>(reference::floats[i]);
    for (std::size_t first : {0U, 1U, 5U}) {
        std::vector<TestType> narrow(n - first + 1, of_bits<TestType>(0x1234));
        simd::narrow(std::span<const float>{values}.subspan(first), narrow.data());
        for (std::size_t i = first; i < n; ++i) {
            INFO(std::hex << reference::floats[i]);
            const TestType one{values[i]};
            REQUIRE(narrow[i - first] == one);
            if (std::isnan(values[i]))
                REQUIRE(is_nan(one));
            else
                REQUIRE(one.bits == expected[i]);
        }
        REQUIRE(narrow.back().bits == 0x1234);
    }
}

TEST_CASE("simd/half: a double is rounded once", "[simd]") {
    bool differs = false;
    for (std::size_t i = 0; i < reference::doubles.size(); ++i) {
        const auto value = std::bit_cast<double>(reference::doubles[i]);
        INFO(value);
        CHECK(simd::float16{simd::round_to_odd(value)}.bits == reference::float16_of_doubles[i]);
        differs = differs || simd::float16{static_cast<float>(value)}.bits != reference::float16_of_doubles[i];
    }
    CHECK(differs);  // rounding twice is another number for some of them
    CHECK(std::isnan(simd::round_to_odd(std::numeric_limits<double>::quiet_NaN())));
    CHECK(std::isinf(simd::round_to_odd(-std::numeric_limits<double>::infinity())));
}

TEMPLATE_TEST_CASE("simd/half: all 65,536 numbers survive a cast to float and back", "[simd]", simd::float16,
                   simd::bfloat16) {
    std::vector<TestType> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = of_bits<TestType>(i);
    std::vector<float> wide(all.size() - 3);
    simd::widen(all.data() + 3, std::span{wide});
    for (std::size_t i = 3; i < all.size(); ++i) {
        const auto value = static_cast<float>(all[i]);
        if (std::isnan(value)) {
            REQUIRE(std::isnan(wide[i - 3]));
            REQUIRE(is_nan(TestType{value}));
            continue;
        }
        REQUIRE(std::bit_cast<std::uint32_t>(wide[i - 3]) == std::bit_cast<std::uint32_t>(value));
        REQUIRE(TestType{value} == all[i]);
        REQUIRE(TestType{value, 0xffffffffU} == all[i]);
        if (i > 3 && i < 0x7c00) REQUIRE(value > static_cast<float>(all[i - 1]));
    }
    CHECK(static_cast<float>(of_bits<TestType>(is_binary16<TestType> ? 0x3555 : 0x3eab)) ==
          Approx(1 / 3.0).epsilon(2e-3));
}

TEMPLATE_TEST_CASE("simd/half: a sum is rounded once, alone and in arrays", "[simd]", simd::float16, simd::bfloat16) {
    const lockstep::core::random_stream random{4, lockstep::core::purpose::user};
    constexpr std::size_t n = 4003;
    std::vector<TestType> a(n), b(n);
    for (std::size_t i = 0; i < n; ++i) {
        // Of all exponents for binary16, of 30 for the other: sums are then exact in double.
        const std::uint32_t word = random.word(i);
        a[i] = of_bits<TestType>(is_binary16<TestType> ? word & 0xffffU : 0x3800U + (word & 0x8fffU));
        b[i] = of_bits<TestType>(is_binary16<TestType> ? word >> 16 : 0x3800U + (word >> 16 & 0x8fffU));
    }
    auto sum = a;
    add_rounded(sum.data(), b.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto exact =
            static_cast<double>(static_cast<float>(a[i])) + static_cast<double>(static_cast<float>(b[i]));
        if (std::isnan(exact)) {
            REQUIRE(is_nan(sum[i]));
            continue;
        }
        REQUIRE(sum[i] == TestType{simd::round_to_odd(exact)});
        REQUIRE(sum[i] == a[i] + b[i]);
        REQUIRE(sum[i] == b[i] + a[i]);
    }
}

TEMPLATE_TEST_CASE("simd/half: the mean over all words is the number", "[simd]", simd::float16, simd::bfloat16) {
    constexpr bool binary16 = is_binary16<TestType>;
    // So many high bits of a word decide; below 2^-14 all of binary16's words do, of which these are a grid.
    constexpr std::uint32_t words = binary16 ? 1U << 13 : 1U << 16;
    const std::vector<float> numbers{1.0F / 3, 1.7F,  0.99999994F, 3.14159F, 0x1.004p0F, 1000.3F, 0x1.ffffp-14F,
                                     6e-5F,    1e-5F, 3e-7F,       5e-8F,    1e-9F,      0};
    for (const float number : numbers) {
        const auto [below, above] = neighbours<TestType>(number);
        std::uint32_t up = 0;
        for (std::uint32_t word = 0; word < words; ++word) {
            const auto sent = static_cast<float>(TestType{number, word * (0xffffffffU / words + 1)});
            REQUIRE((sent == below || sent == above));
            REQUIRE(static_cast<float>(TestType{-number, word * (0xffffffffU / words + 1)}) == -sent);
            up += sent == above ? 1 : 0;
        }
        const double chance = (static_cast<double>(number) - static_cast<double>(below)) /
                              (static_cast<double>(above) - static_cast<double>(below));
        INFO(number << " between " << below << " and " << above);
        if (number >= 0x1p-14F || !binary16)
            CHECK(up == chance * words);  // exactly
        else
            CHECK(std::abs(up - chance * words) < 1);
    }
}

TEMPLATE_TEST_CASE("simd/half: arrays are rounded stochastically as single numbers are", "[simd]", simd::float16,
                   simd::bfloat16) {
    const lockstep::core::random_stream random{4, lockstep::core::purpose::user};
    const std::size_t n = reference::floats.size();
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = std::bit_cast<float>(reference::floats[i]);
    for (std::uint64_t draw = 0; draw < 50; ++draw) {
        std::vector<std::uint32_t> words(n);
        random.words(n * draw, words);
        std::vector<TestType> narrow(n + 1, of_bits<TestType>(0x1234));
        simd::narrow(std::span<const float>{values}, std::span<const std::uint32_t>{words}, narrow.data());
        for (std::size_t i = 0; i < n; ++i) {
            INFO(std::hex << reference::floats[i] << " " << words[i]);
            REQUIRE(narrow[i] == TestType{values[i], words[i]});
        }
        REQUIRE(narrow.back().bits == 0x1234);
    }
}

TEMPLATE_TEST_CASE("simd/half: what is too large is infinite, what is none stays none", "[simd]", simd::float16,
                   simd::bfloat16) {
    const float largest = is_binary16<TestType> ? 65504.0F : 0x1.fep127F;
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(static_cast<float>(TestType{largest}) == largest);
    CHECK(static_cast<float>(TestType{std::numeric_limits<float>::max()}) == inf);
    CHECK(static_cast<float>(TestType{largest} + TestType{largest}) == inf);
    CHECK(static_cast<float>(TestType{-inf} + TestType{largest}) == -inf);
    CHECK(is_nan(TestType{-inf} + TestType{inf}));
    CHECK(is_nan(TestType{std::numeric_limits<float>::quiet_NaN()} + TestType{1.0F}));
    for (const std::uint32_t word : {0U, 0x80000000U, 0xffffffffU}) {
        CHECK(static_cast<float>(TestType{largest, word}) == largest);
        CHECK(static_cast<float>(TestType{inf, word}) == inf);
        CHECK(is_nan(TestType{std::numeric_limits<float>::signaling_NaN(), word}));
        const auto beyond = static_cast<float>(TestType{is_binary16<TestType> ? 1e6F : 3.4028234e38F, word});
        CHECK((beyond == inf || beyond == largest));
        CHECK((!is_binary16<TestType> || beyond == inf));
    }
}
