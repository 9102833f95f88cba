// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/error.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

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

TEST_CASE("core/error: what a text quotes becomes printable; only a remedy has several lines", "[core]") {
    const core::error made{std::string{"\"a\0b\nlockstep: c\"", 17}, "see\n    \x1b[2Jthis"};
    CHECK(std::string{made.what()} == "lockstep: \"a\\x00b\\nlockstep: c\"; see\n    \\x1b[2Jthis");
}

TEST_CASE("core/error: memory that is not there is an error with its size", "[core]") {
    CHECK(core::with_memory("nothing", 1, "do", [] { return 7; }) == 7);
    CHECK_THROWS_WITH(
        core::with_memory("a table", 5'000'000'000, "make it smaller", []() -> int { throw std::bad_alloc{}; }),
        "lockstep: no memory for a table: 5000000000 bytes were asked for; make it smaller");
    CHECK_THROWS_WITH(
        core::with_memory("a list", 1, "shorten it", [] { std::vector<int>{}.reserve(static_cast<std::size_t>(-1)); }),
        "lockstep: no memory for a list: 1 bytes were asked for; shorten it");
    CHECK_THROWS_AS(core::with_memory("x", 1, "y", []() -> int { throw std::runtime_error{"z"}; }), std::runtime_error);
}

TEST_CASE("core/error: an exception is thrown again, want of memory with what the process holds", "[core]") {
    const auto again = [](const auto& thrown) {
        try {
            throw thrown;
        } catch (...) {
            core::rethrow();
        }
    };
    CHECK_THROWS_WITH(again(std::runtime_error{"z"}), "z");
    CHECK_THROWS_AS(again(std::bad_alloc{}), core::error);
    CHECK_THROWS_WITH(again(std::bad_alloc{}),
                      Catch::Matches("lockstep: no memory: the process has taken up to [0-9]+ KiB.*; use smaller .*"));
}
