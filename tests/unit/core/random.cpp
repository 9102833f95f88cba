// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/random.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

namespace core = lockstep::core;
using core::purpose;
using core::random_stream;

namespace {

using four = std::array<std::uint32_t, 4>;

constexpr std::size_t draws = 1U << 17U;

/// The mean of `draws` independent numbers of this variance lies within five standard deviations of what is expected,
/// of which 6 in 10^7 fair generators would fall short.
double deviation(double variance) { return 5 * std::sqrt(variance / static_cast<double>(draws)); }

template <class F>
double mean_of(F&& f) {
    double sum = 0;
    for (std::size_t i = 0; i < draws; ++i) sum += f(i);
    return sum / static_cast<double>(draws);
}

}  // namespace

TEST_CASE("core/random: the known answers of Philox4x32-10 (Random123)", "[core]") {
    static_assert(core::philox({0, 0, 0, 0}, 0, 0) == four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(core::philox({0, 0, 0, 0}, 0, 0) == four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(core::philox({~0U, ~0U, ~0U, ~0U}, ~0U, ~0U) == four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    // The digits of pi.
    CHECK(core::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
          four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("core/random: a block is Philox of (block, step, purpose and series) under the seed", "[core]") {
    const random_stream stream{0x0123456789abcdefULL, purpose::dropout, 5, 77};
    CHECK(stream.block(0x300000002ULL) == core::philox({2, 3, 77, (2U << 24U) | 5U}, 0x89abcdef, 0x01234567));
    CHECK(stream.word(4 * 9 + 3) == stream.block(9)[3]);
}

TEST_CASE("core/random: words() gives word() at any offset and length, and writes nothing else", "[core]") {
    const random_stream stream{42, purpose::user, 1, 2};
    constexpr std::uint32_t guard = 0xdeadbeef;
    for (const std::uint64_t base :
         {0ULL, (1ULL << 34U) - 8})  // around the carry into the second word of the counter as well
        for (std::uint64_t offset = 0; offset < 9; ++offset)
            for (std::size_t length = 0; length < 20; ++length) {
                std::vector<std::uint32_t> out(length + 2, guard);
                stream.words(base + offset, {out.data() + 1, length});
                REQUIRE(out.front() == guard);
                REQUIRE(out.back() == guard);
                for (std::size_t i = 0; i < length; ++i) REQUIRE(out[i + 1] == stream.word(base + offset + i));
            }
}

TEST_CASE("core/random: seed, purpose, series and step each give another stream", "[core]") {
    std::set<std::uint32_t> first_words;
    std::size_t streams = 0;
    for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32U, (1ULL << 32U) + 1})
        for (const auto what : {purpose::initialise, purpose::shuffle, purpose::dropout, purpose::rounding,
                                purpose::augmentation, purpose::generator, purpose::user})
            for (std::uint32_t series = 0; series < 8; ++series)
                for (std::uint32_t step = 0; step < 8; ++step, ++streams)
                    first_words.insert(random_stream{seed, what, series, step}.word(0));
    // 1,792 words of 32 bits: the expected number of pairs that are equal by chance is 4e-4.
    CHECK(first_words.size() == streams);
}

TEST_CASE("core/random: uniform numbers", "[core]") {
    static_assert(random_stream::to_uniform(0) == 0.0F);
    static_assert(random_stream::to_uniform(~0U) == 1.0F - 0x1p-24F);
    const random_stream stream{1, purpose::user};
    for (std::size_t i = 0; i < 1000; ++i) {
        const float u = stream.uniform(i);
        REQUIRE(u >= 0.0F);
        REQUIRE(u < 1.0F);
        REQUIRE(u * 0x1p24F == std::floor(u * 0x1p24F));
    }
    const auto centred = [&](std::size_t i) { return static_cast<double>(stream.uniform(i)) - 0.5; };
    CHECK(std::abs(mean_of(centred)) < deviation(1.0 / 12));
    // E x^2 = 1/12, E x^4 = 1/80 for x uniform in +- 1/2.
    CHECK(std::abs(mean_of([&](std::size_t i) { return centred(i) * centred(i); }) - 1.0 / 12) <
          deviation(1.0 / 80 - 1.0 / 144));
    for (const std::size_t lag : {1, 2, 3, 4})
        CHECK(std::abs(mean_of([&](std::size_t i) { return centred(i) * centred(i + lag); })) < deviation(1.0 / 144));
}

TEST_CASE("core/random: normal numbers", "[core]") {
    const random_stream stream{2, purpose::user};
    const auto power = [&](int n) {
        return mean_of([&](std::size_t i) {
            double out = 1;
            for (int k = 0; k < n; ++k) out *= stream.normal(i);
            return out;
        });
    };
    // E x^2 = 1, E x^4 = 3, E x^6 = 15, E x^8 = 105.
    CHECK(std::abs(power(1)) < deviation(1));
    CHECK(std::abs(power(2) - 1) < deviation(3 - 1));
    CHECK(std::abs(power(3)) < deviation(15));
    CHECK(std::abs(power(4) - 3) < deviation(105 - 9));
    CHECK(std::abs(mean_of([&](std::size_t i) { return stream.normal(i) * stream.normal(i + 1); })) < deviation(1));
    for (const double limit : {0.5, 1.0, 2.0, 3.0}) {
        const double beyond = std::erfc(limit / std::sqrt(2.0));
        CHECK(std::abs(mean_of([&](std::size_t i) { return std::abs(stream.normal(i)) > limit ? 1.0 : 0.0; }) -
                       beyond) < deviation(beyond * (1 - beyond)));
    }
}

TEST_CASE("core/random: below() is uniform over 0 .. bound - 1", "[core]") {
    const random_stream stream{3, purpose::user};
    for (const std::uint64_t bound : {1ULL, 2ULL, 7ULL, 10ULL, 64ULL}) {
        std::vector<std::size_t> hits(bound);
        for (std::size_t i = 0; i < draws; ++i) ++hits.at(stream.below(bound, i));
        const double each = 1.0 / static_cast<double>(bound);
        for (const std::size_t count : hits)
            CHECK(std::abs(static_cast<double>(count) / static_cast<double>(draws) - each) <=
                  deviation(each * (1 - each)));
    }
    constexpr std::uint64_t large = (1ULL << 63U) + 1;
    CHECK(std::abs(mean_of([&](std::size_t i) {
                       REQUIRE(stream.below(large, i) < large);
                       return static_cast<double>(stream.below(large, i)) / static_cast<double>(large);
                   }) -
                   0.5) < deviation(1.0 / 12));
}
