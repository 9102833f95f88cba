// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/sampler.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "files.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {
namespace {

static_assert(Sampler<shuffled> && Sampler<ordered>);
// One with an order of its own says nothing of it.
struct derived : shuffled {};
static_assert(is_pure<shuffled> && is_pure<ordered> && !is_pure<derived>);

std::vector<std::uint64_t> shuffle(std::uint64_t n, std::uint64_t epoch, std::uint64_t seed) {
    std::vector<std::uint64_t> out(n, 77);
    shuffled{}.order(n, epoch, seed, out);
    return out;
}

TEST_CASE("data/sampler: a shuffle is a permutation", "[data]") {
    for (const std::uint64_t n : {0U, 1U, 2U, 3U, 1000U}) {
        std::vector<std::uint64_t> all(n);
        std::iota(all.begin(), all.end(), std::uint64_t{0});
        for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
            auto out = shuffle(n, epoch, 5);
            if (n == 1000) CHECK(out != all);
            std::sort(out.begin(), out.end());
            CHECK(out == all);
        }
    }
}

TEST_CASE("data/sampler: a shuffle depends on seed and epoch, and on nothing else", "[data]") {
    CHECK(shuffle(1000, 3, 5) == shuffle(1000, 3, 5));
    CHECK(shuffle(1000, 3, 5) != shuffle(1000, 4, 5));
    CHECK(shuffle(1000, 3, 5) != shuffle(1000, 3, 6));
    CHECK(shuffle(1000, 3, 5) != shuffle(1000, 3 + (std::uint64_t{1} << 32), 5));
    CHECK(shuffle(1000, 3, 5) != shuffle(1000, 3, 5 + (std::uint64_t{1} << 32)));
}

TEST_CASE("data/sampler: all permutations of three are equally likely", "[data]") {
    std::array<int, 27> counts{};
    constexpr int trials = 60'000;
    for (std::uint64_t epoch = 0; epoch < trials; ++epoch) {
        const auto out = shuffle(3, epoch, 9);
        ++counts[9 * out[0] + 3 * out[1] + out[2]];
    }
    double chi_square = 0;
    std::size_t seen = 0;
    for (const int count : counts)
        if (count > 0) {
            ++seen;
            chi_square += (count - trials / 6.0) * (count - trials / 6.0) / (trials / 6.0);
        }
    CHECK(seen == 6);
    CHECK(chi_square < 20.5);  // 5 degrees of freedom: exceeded by chance once in 1000 seeds
}

TEST_CASE("data/sampler: the stored order", "[data]") {
    std::vector<std::uint64_t> out(5, 77);
    ordered{}.order(5, 3, 1, out);
    CHECK(out == std::vector<std::uint64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("data/sampler: an order of another length is an error", "[data]") {
    std::vector<std::uint64_t> out(4);
    const std::string text =
        "lockstep: the order of 5 samples was asked for, with room for 4; pass a span of 5 numbers";
    CHECK(test::error_of([&] { ordered{}.order(5, 0, 0, out); }) == text);
    CHECK(test::error_of([&] { shuffled{}.order(5, 0, 0, out); }) == text);
}

}  // namespace
}  // namespace lockstep::data
