// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/error.hpp"

#include <catch2/catch.hpp>

namespace core = lockstep::core;

TEST_CASE("core/error: the text names the problem, then the remedy", "[core]") {
    CHECK(std::string{core::error{"3 rows", "bring 4"}.what()} == "lockstep: 3 rows; bring 4");
    CHECK(std::string{core::error{"as another rank wrote it"}.what()} == "as another rank wrote it");
    static_assert(std::is_base_of_v<std::runtime_error, core::error>);
}

TEST_CASE("core/error: a check that fails throws both texts, one that passes builds neither", "[core]") {
    int built = 0;
    const auto problem = [&] { return ++built, std::string{"a"}; };
    const auto remedy = [&] { return ++built, std::string{"b"}; };
    CHECK_NOTHROW(core::require(true, problem, remedy));
    CHECK(built == 0);
    CHECK_THROWS_WITH(core::require(false, problem, remedy), "lockstep: a; b");
    CHECK(built == 2);
    CHECK_THROWS_AS(core::require(false, problem, remedy), core::error);
}
