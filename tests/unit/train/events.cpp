// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/train/events.hpp"

#include <catch2/catch.hpp>

namespace core = lockstep::core;
namespace train = lockstep::train;

TEST_CASE("train/events: epochs count what an earlier fit() has left of one as part of the first", "[train]") {
    CHECK(train::steps_until(train::epochs{3}, 10, 0) == 30);
    CHECK(train::steps_until(train::epochs{3}, 10, 4) == 26);
    CHECK(train::steps_until(train::epochs{0}, 10, 4) == 0);
    CHECK(train::steps_until(train::steps{~std::size_t{0}}, 10, 4) == ~std::uint64_t{0});
}

TEST_CASE("train/events: more steps than can be counted are an error", "[train]") {
    // Wrapped, this would be 2 steps.
    CHECK_THROWS_WITH(train::steps_until(train::epochs{(std::size_t{1} << 63U) + 1}, 2, 0),
                      Catch::Contains("steps of a fit() of so many epochs: 9223372036854775809 x 2"));
}
