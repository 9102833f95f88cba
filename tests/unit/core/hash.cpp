// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/hash.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

namespace core = lockstep::core;

namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
    std::vector<std::byte> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i * 37 + 11);
    return out;
}

}  // namespace

TEST_CASE("core/hash: mix gives the published sequence of splitmix64 for the seed 1234567", "[core]") {
    std::uint64_t state = 1234567;
    for (const std::uint64_t expected : {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL,
                                         4593380528125082431ULL, 16408922859458223821ULL}) {
        state += 0x9e3779b97f4a7c15ULL;
        CHECK(core::mix(state) == expected);
    }
}

TEST_CASE("core/hash: mix changes half of the output bits for each input bit", "[core]") {
    // 64 x 64 x 16 fair coins: half of them, and six standard deviations of the number of heads.
    constexpr int coins = 64 * 64 * 16;
    int changed = 0;
    for (std::uint64_t value = 1; value <= 16; ++value)
        for (int bit = 0; bit < 64; ++bit)
            changed += std::popcount(core::mix(value) ^ core::mix(value ^ (1ULL << bit)));
    CHECK(std::abs(changed - coins / 2) < 6 * std::sqrt(coins / 4.0));
}

TEST_CASE("core/hash: every bit, the length and the seed count", "[core]") {
    std::set<std::uint64_t> seen;
    std::size_t hashed = 0;
    const auto add = [&](std::span<const std::byte> bytes, std::uint64_t seed) {
        seen.insert(core::hash(bytes, seed));
        ++hashed;
    };
    for (std::size_t length = 0; length <= 41; ++length) {
        auto bytes = some_bytes(length);
        add(bytes, 0);
        add(bytes, 1);
        for (std::size_t bit = 0; bit < 8 * length; ++bit) {
            bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
            add(bytes, 0);
            bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        }
    }
    CHECK(seen.size() == hashed);
}

TEST_CASE("core/hash: zeros after the end are seen", "[core]") {
    const std::vector<std::byte> zeros(40);
    std::set<std::uint64_t> seen;
    for (std::size_t length = 0; length <= zeros.size(); ++length)
        seen.insert(core::hash(std::span{zeros}.first(length)));
    CHECK(seen.size() == zeros.size() + 1);
}

TEST_CASE("core/hash: the order of words and of chained parts is seen", "[core]") {
    CHECK(core::hash("abcdefghABCDEFGH") != core::hash("ABCDEFGHabcdefgh"));
    CHECK(core::hash("a", core::hash("b")) != core::hash("b", core::hash("a")));
    CHECK(core::hash("ab") != core::hash("b", core::hash("a")));
}

TEST_CASE("core/hash: the place in memory is not", "[core]") {
    const auto bytes = some_bytes(29);
    const std::uint64_t expected = core::hash(bytes);
    for (std::size_t offset = 0; offset < 9; ++offset) {
        std::vector<std::byte> moved(offset, std::byte{255});
        moved.insert(moved.end(), bytes.begin(), bytes.end());
        CHECK(core::hash(std::span<const std::byte>{moved}.subspan(offset)) == expected);
    }
    CHECK(core::hash(std::string_view{"weights"}) == core::hash(std::as_bytes(std::span{std::string_view{"weights"}})));
}

TEST_CASE("core/hash: sixteen hexadecimal digits", "[core]") {
    CHECK(core::hexadecimal(0) == "0000000000000000");
    CHECK(core::hexadecimal(0x0123456789abcdefULL) == "0123456789abcdef");
    CHECK(core::hexadecimal(~0ULL) == "ffffffffffffffff");
}
