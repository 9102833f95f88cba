// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/batch.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace simd = lockstep::simd;

TEST_CASE("simd/batch: a register holds what the compiler flags say", "[simd]") {
    CHECK(simd::width<float> == 2 * simd::width<double>);
    CHECK(simd::alignment % (simd::width<double> * sizeof(double)) == 0);
    CHECK(!simd::instruction_set().empty());
#if defined(__AVX512F__)
    CHECK(simd::width<float> == 16);
    CHECK(simd::registers == 32);
#elif defined(__AVX__)
    CHECK(simd::width<float> == 8);
    CHECK(simd::registers == 16);
#endif
}

TEMPLATE_TEST_CASE("simd/batch: loads and stores at any offset touch one register's worth", "[simd]", float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    std::vector<TestType> from(3 * width);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<TestType>(i + 1);
    for (std::size_t offset = 0; offset <= width; ++offset) {
        std::vector<TestType> to(3 * width, TestType{-1});
        simd::store(to.data() + offset, simd::load(from.data() + offset));
        for (std::size_t i = 0; i < to.size(); ++i)
            REQUIRE(to[i] == (i >= offset && i < offset + width ? from[i] : TestType{-1}));
    }
}

TEMPLATE_TEST_CASE("simd/batch: bits are those of std::bit_cast, there and back", "[simd]",
                   (std::pair<float, std::int32_t>), (std::pair<double, std::uint64_t>)) {
    using number = typename TestType::first_type;
    using integer = typename TestType::second_type;
    std::vector<number> values(simd::width<number>), back(values.size());
    std::vector<integer> bits(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<number>(0.7 * static_cast<double>(i)) - 2;
    const auto there = simd::bits_as<integer>(simd::load(values.data()));
    simd::store(bits.data(), there);
    simd::store(back.data(), simd::bits_as<number>(there));
    for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(bits[i] == std::bit_cast<integer>(values[i]));
    CHECK(back == values);
}

TEMPLATE_TEST_CASE("simd/batch: what is streamed is what was stored", "[simd]", float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    std::vector<TestType> from(width);
    for (std::size_t i = 0; i < width; ++i) from[i] = static_cast<TestType>(i + 1);
    alignas(simd::alignment) TestType to[3 * width]{};
    simd::stream(to + width, simd::load(from.data()));
    simd::stream_end();
    for (std::size_t i = 0; i < 3 * width; ++i)
        REQUIRE(to[i] == (i >= width && i < 2 * width ? from[i - width] : TestType{0}));
}

TEMPLATE_TEST_CASE("simd/batch: only whole lines of what is large are streamed", "[simd]", float, double) {
    constexpr std::size_t many = simd::beyond_caches / sizeof(TestType), line = simd::alignment / sizeof(TestType);
    alignas(simd::alignment) TestType to[2]{};
    CHECK(simd::streams(to, many, 3 * line));
    CHECK(!simd::streams(to, many - 1, 3 * line));
    CHECK(!simd::streams(to, many, line / 2));
    CHECK(!simd::streams(to + 1, many, line));
}

TEMPLATE_TEST_CASE("simd/batch: fma rounds as often as fma_rounds_once says", "[simd]", float, double) {
    constexpr TestType tiny = std::numeric_limits<TestType>::epsilon();
    using batch = simd::batch<TestType>;
    std::vector<TestType> out(simd::width<TestType>);
    // (1 + e)(1 - e) - 1 = -e^2, which a product rounded on its own would lose.
    simd::store(out.data(), simd::fma(batch(1 + tiny), batch(1 - tiny), batch(TestType{-1})));
    for (const TestType one : out) CHECK(one == (simd::fma_rounds_once ? -tiny * tiny : TestType{0}));
}

TEMPLATE_TEST_CASE("simd/batch: roots are those of the standard library, bit for bit", "[simd]", float, double) {
    using limits = std::numeric_limits<TestType>;
    std::vector<TestType> from{0,
                               -TestType{0},
                               1,
                               2,
                               limits::min(),
                               limits::denorm_min(),
                               limits::max(),
                               limits::infinity(),
                               -1,
                               limits::quiet_NaN(),
                               TestType{0.1F}};
    while (from.size() % simd::width<TestType> != 0) from.push_back(from.back() * 3);
    for (std::size_t at = 0; at < from.size(); at += simd::width<TestType>) {
        std::vector<TestType> to(simd::width<TestType>);
        simd::store(to.data(), simd::sqrt(simd::load(from.data() + at)));
        for (std::size_t i = 0; i < to.size(); ++i) {
            const TestType root = std::sqrt(from[at + i]);
            CHECK((std::isnan(root) ? std::isnan(to[i]) : to[i] == root && std::signbit(to[i]) == std::signbit(root)));
        }
    }
}

TEMPLATE_TEST_CASE("simd/batch: products are added as fma does, whether numbers come from memory or from registers",
                   "[simd]", float, double) {
    using batch = simd::batch<TestType>;
    constexpr std::size_t width = simd::width<TestType>;
    std::vector<TestType> b(width), start(width), want(width), from_memory(width), from_register(width);
    for (std::size_t i = 0; i < width; ++i) {
        b[i] = 1 + static_cast<TestType>(i) / 3;
        start[i] = static_cast<TestType>(i) / 7 - 1;
    }
    // The second of two, so that one beside it would show.
    const TestType numbers[] = {TestType{2}, TestType{1} / 3, TestType{5}};
    simd::store(want.data(), simd::fma(batch(numbers[1]), simd::load(b.data()), simd::load(start.data())));
    batch sum = simd::load(start.data());
    simd::add_product(sum, numbers[1], simd::load(b.data()));
    simd::store(from_memory.data(), sum);
    sum = simd::load(start.data());
    simd::add_product(sum, batch(numbers[1]), simd::load(b.data()));
    simd::store(from_register.data(), sum);
    CHECK(from_memory == want);
    CHECK(from_register == want);
}
