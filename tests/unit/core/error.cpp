// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/error.hpp"

#include <catch2/catch.hpp>

namespace core = lockstep::core;

TEST_CASE("core/error: the text names the problem, then the remedy", "[core]") {
    CHECK(std::string{core::error{"3 rows", "bring 4"}.what()} == "lockstep: 3 rows; bring 4");
    CHECK(std::string{core::error{"as another rank wrote it"}.what()} == "as another rank wrote it");
    static_assert(std::is_base_of_v<std::runtime_error, core::error>);
}

TEST_CASE("core/error: a failure throws both texts", "[core]") {
    CHECK_THROWS_WITH(core::fail("a", "b"), "lockstep: a; b");
    CHECK_THROWS_AS(core::fail("a", "b"), core::error);
}

TEST_CASE("core/error: a line is added once, and copies have it", "[core]") {
    core::error one{"3 rows", "bring 4"};
    one.add_line("the weights are whole");
    one.add_line("another line");
    const core::error copy{one};
    CHECK(std::string{one.what()} == "lockstep: 3 rows; bring 4\n    the weights are whole");
    CHECK(std::string{copy.what()} == one.what());
    static_assert(std::is_nothrow_copy_constructible_v<core::error>);
}
