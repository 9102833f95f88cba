// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/arena.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/core/text.hpp"

namespace tensor = lockstep::tensor;
namespace simd = lockstep::simd;

TEST_CASE("tensor/arena: arrays start on cache lines, are zero, and do not overlap", "[tensor]") {
    tensor::arena arena;
    std::vector<tensor::slice<float>> floats;
    std::vector<tensor::slice<double>> doubles;
    std::vector<tensor::slice<std::byte>> bytes;
    for (const std::size_t count : {0, 1, 15, 16, 17, 63, 64, 65, 1000}) {
        floats.push_back(arena.reserve<float>(count));
        doubles.push_back(arena.reserve<double>(count));
        bytes.push_back(arena.reserve<std::byte>(count));
    }
    CHECK(arena.bytes() % simd::alignment == 0);
    arena.allocate();

    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> used;
    const auto look = [&](const auto& slices) {
        for (const auto& one : slices) {
            const auto span = arena[one];
            REQUIRE(span.size() == one.count);
            REQUIRE(reinterpret_cast<std::uintptr_t>(span.data()) % simd::alignment == 0);
            using value = typename decltype(span)::value_type;
            REQUIRE(std::all_of(span.begin(), span.end(), [](value number) { return number == value{}; }));
            // A sanitizer sees a write beyond the block; the loop below sees one into a neighbour.
            std::fill(span.begin(), span.end(), static_cast<value>(1));
            if (!span.empty())
                used.emplace_back(reinterpret_cast<std::uintptr_t>(span.data()),
                                  reinterpret_cast<std::uintptr_t>(span.data() + span.size()));
        }
    };
    look(floats);
    look(doubles);
    look(bytes);
    std::sort(used.begin(), used.end());
    REQUIRE(used.size() == 3 * 8);
    for (std::size_t i = 1; i < used.size(); ++i) CHECK(used[i - 1].second <= used[i].first);
    CHECK(used.back().second - used.front().first <= arena.bytes() + arena.gap_bytes());
}

TEST_CASE("tensor/arena: spans stay where they are when the arena moves", "[tensor]") {
    tensor::arena arena;
    const auto one = arena.reserve<int>(3);
    arena.allocate();
    const auto before = arena[one];
    before[2] = 7;
    const tensor::arena moved = std::move(arena);
    CHECK(moved[one].data() == before.data());
    CHECK(moved[one][2] == 7);
}

TEST_CASE("tensor/arena: an arena of nothing can be allocated", "[tensor]") {
    tensor::arena arena;
    const auto none = arena.reserve<double>(0);
    arena.allocate();
    CHECK(arena.bytes() == 0);
    CHECK(arena[none].empty());
}

TEST_CASE("tensor/arena: sizes that would wrap are an error, and reserve nothing", "[tensor]") {
    tensor::arena arena;
    CHECK_THROWS_WITH(arena.reserve<double>(std::size_t{1} << 61U),
                      Catch::Contains("bytes of an array: 2305843009213693952 x 8"));
    CHECK_THROWS_AS(arena.reserve<float>(~std::size_t{0}), lockstep::core::error);
    CHECK_THROWS_AS(arena.reserve<std::byte>(~std::size_t{0}), lockstep::core::error);
    CHECK(arena.bytes() == 0);
    (void)arena.reserve<std::byte>(std::size_t{1} << 62U);
    CHECK_THROWS_WITH(arena.reserve<std::byte>(std::size_t{1} << 62U), Catch::Contains("bytes of an arena"));
    std::array<std::byte, 128> window{};
    arena.share(window);
    CHECK_THROWS_AS(arena.reserve_shared<double>(std::size_t{1} << 61U), lockstep::core::error);
}

// A sanitizer ends the process instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("tensor/arena: memory that is not there is an error with its size", "[tensor]") {
    tensor::arena arena;
    (void)arena.reserve<std::byte>(std::size_t{1} << 47);  // all addresses that a process has
    CHECK_THROWS_WITH(
        arena.allocate(),
        lockstep::core::text(
            "lockstep: no memory for the arena, which holds weights, gradients and activations: ",
            (std::size_t{1} << 47) + arena.gap_bytes(),
            " bytes were asked for; use a smaller batch or network, more ranks, or a machine with more memory; "
            "see ulimit -v"));
}
#endif
