// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/random_words.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

using lockstep::core::random_stream;

TEST_CASE("simd/random_words: the words of the stream, from anywhere", "[simd]") {
    for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 32) - 20,
                                      (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 40}) {
        const auto random = random_stream{0x123456789abcdefULL, lockstep::core::purpose::rounding, 77, 5}.from(start);
        for (const std::uint64_t first : {0U, 1U, 4U, 6U, 64U, 1000U})
            for (const std::size_t n : {0U, 1U, 63U, 64U, 65U, 127U, 256U, 333U}) {
                std::vector<std::uint32_t> words(n + 1, 99);
                lockstep::simd::random_words(random, first, std::span{words}.first(n));
                for (std::size_t i = 0; i < n; ++i) REQUIRE(words[i] == random.word(first + i));
                REQUIRE(words[n] == 99);
            }
    }
}
