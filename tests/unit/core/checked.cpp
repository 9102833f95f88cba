// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/checked.hpp"

#include <catch2/catch.hpp>
#include <cstdint>

namespace core = lockstep::core;

TEST_CASE("core/checked: products and sums that fit are those of plain arithmetic", "[core]") {
    static_assert(core::checked_product("", 3U, std::size_t{5}) == 15);
    static_assert(core::checked_product("", core::largest_size, 1U) == core::largest_size);
    static_assert(core::checked_product("", 1ULL << 31U, 1ULL << 31U) == 1ULL << 62U);
    static_assert(core::checked_product("", ~0ULL, ~0ULL, 0ULL) == 0);
    static_assert(core::checked_sum("", core::largest_size - 1, 1U) == core::largest_size);
    static_assert(core::checked_sum("") == 0 && core::checked_product("") == 1);
}

TEST_CASE("core/checked: what does not fit is an error with the numbers and their purpose", "[core]") {
    CHECK_THROWS_WITH(core::checked_product("bytes of a table", 1ULL << 62U, std::size_t{8}),
                      "lockstep: bytes of a table: 4611686018427387904 x 8 is more than the 9223372036854775807 that a "
                      "program can have; "
                      "use smaller numbers");
    CHECK_THROWS_WITH(core::checked_sum("bytes of two tables", core::largest_size, 1U),
                      "lockstep: bytes of two tables: 9223372036854775807 + 1 is more than the 9223372036854775807 "
                      "that a program can "
                      "have; use smaller numbers");
    CHECK_THROWS_AS(core::checked_product("", ~0ULL), core::error);
    CHECK_THROWS_AS(core::checked_product("", 1ULL << 63U), core::error);
    // Wrapped, these would be 0 and 1.
    CHECK_THROWS_AS(core::checked_product("", 1ULL << 32U, 1ULL << 32U), core::error);
    CHECK_THROWS_AS(core::checked_sum("", ~0ULL, 2U), core::error);
}
