// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/state.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using namespace lockstep::tensor;

namespace {

/// The sum of the hashes of a run that is cut at each of `cuts`, as if every piece lay on a rank of its own.
std::uint64_t hash_of(std::span<const float> numbers, const std::vector<std::size_t>& cuts,
                      state_part<const float> of) {
    std::uint64_t sum = 0;
    std::size_t first = 0;
    for (std::size_t piece = 0; piece <= cuts.size(); ++piece) {
        const std::size_t last = piece < cuts.size() ? cuts[piece] : numbers.size();
        of.first = first;
        of.numbers = numbers.subspan(first, last - first);
        state_hash hash;
        hash(of);
        sum += hash.sum();
        first = last;
    }
    return sum;
}

}  // namespace

TEST_CASE("tensor/state: a hash of state does not depend on where it is cut, but on each bit and each name",
          "[tensor]") {
    std::vector<float> numbers(100);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 3;
    const state_part<const float> of{.role = "weights", .slot = 1, .set = 1, .tensor = 3, .segment = 64, .worker = 2};
    const std::uint64_t whole = hash_of(numbers, {}, of);
    CHECK(hash_of(numbers, {1}, of) == whole);
    CHECK(hash_of(numbers, {13, 50, 50, 99}, of) == whole);

    for (const std::size_t changed : {std::size_t{0}, std::size_t{41}, std::size_t{99}}) {
        auto other = numbers;
        other[changed] = -other[changed];
        CHECK(hash_of(other, {}, of) != whole);
    }
    auto swapped = numbers;
    std::swap(swapped[10], swapped[11]);
    CHECK(hash_of(swapped, {}, of) != whole);
    std::array<state_part<const float>, 6> named{of, of, of, of, of, of};
    named[0].role = "statistics";
    named[1].slot = 0;
    named[2].set = 0;
    named[3].tensor = 4;
    named[4].segment = 0;
    named[5].worker = shared_by_workers;
    for (const auto& one : named) CHECK(hash_of(numbers, {}, one) != whole);
}

TEST_CASE("tensor/state: what does not speak adds nothing", "[tensor]") {
    const std::array<double, 3> numbers{1, 2, 3};
    state_hash hash;
    hash(state_part<const double>{.role = "weights", .numbers = numbers, .speaks = false});
    CHECK(hash.sum() == 0);
    hash(state_part<const double>{.role = "weights", .numbers = numbers});
    CHECK(hash.sum() != 0);
}
