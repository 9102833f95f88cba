// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/bytes.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <initializer_list>
#include <vector>

using namespace lockstep;

TEMPLATE_TEST_CASE("simd/bytes: every byte there and back, and nothing beside it", "[simd]", float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    std::vector<std::uint8_t> bytes(256 + width);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
    for (std::size_t first = 0; first <= 256; ++first) {
        const auto numbers = simd::load_bytes<TestType>(bytes.data() + first);
        std::array<TestType, width> values;
        simd::store(values.data(), numbers);
        for (std::size_t i = 0; i < width; ++i) REQUIRE(values[i] == static_cast<TestType>((first + i) % 256));
        std::array<std::uint8_t, width + 2> out;
        out.fill(77);
        simd::store_bytes<TestType>(out.data() + 1, numbers);
        for (std::size_t i = 0; i < width; ++i) REQUIRE(out[1 + i] == static_cast<std::uint8_t>(first + i));
        REQUIRE((out.front() == 77 && out.back() == 77));
    }
}

TEMPLATE_TEST_CASE("simd/bytes: which bytes are equal to one", "[simd]", float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    std::vector<std::uint8_t> bytes(width + 1);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i % 3 == 0 ? 200 : i % 5);
    for (const std::uint8_t wanted : std::initializer_list<std::uint8_t>{0, 1, 4, 200, 255})
        for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
            const auto equal = simd::equal_bytes<TestType>(bytes.data() + first, wanted);
            std::array<TestType, width> values;
            simd::store(values.data(),
                        select(equal, simd::batch<TestType>(TestType{1}), simd::batch<TestType>(TestType{0})));
            for (std::size_t i = 0; i < width; ++i) REQUIRE(values[i] == (bytes[first + i] == wanted ? 1 : 0));
        }
}
