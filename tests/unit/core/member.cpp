// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/member.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::core;

namespace {
struct base {
    void first() const;
    void second() const;
    template <class T>
    auto third(const T& value) const noexcept {
        return value;
    }
    static void free();
};
struct derived : base {
    void second() const;
};
}  // namespace

TEST_CASE("core/member: the class that says it", "[core]") {
    STATIC_REQUIRE_FALSE(is_inherited<base, decltype(&base::first)>);
    STATIC_REQUIRE(is_inherited<derived, decltype(&derived::first)>);
    STATIC_REQUIRE_FALSE(is_inherited<derived, decltype(&derived::second)>);
    STATIC_REQUIRE(is_inherited<derived, decltype(&derived::template third<int>)>);
    STATIC_REQUIRE_FALSE(is_inherited<derived, decltype(&derived::free)>);  // of no class
}
