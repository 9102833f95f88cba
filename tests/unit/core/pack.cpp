// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/pack.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace core = lockstep::core;

TEST_CASE("core/pack: elements are found by number, also where types repeat", "[core]") {
    core::pack<int, double, int, std::string> all{1, 2.5, 3, std::string{"four"}};
    static_assert(decltype(all)::size == 4);
    static_assert(std::is_same_v<core::element<0, decltype(all)>, int>);
    static_assert(std::is_same_v<core::element<1, decltype(all)>, double>);
    static_assert(std::is_same_v<core::element<3, decltype(all)>, std::string>);
    CHECK(core::get<0>(all) == 1);
    CHECK(core::get<1>(all) == 2.5);
    CHECK(core::get<2>(all) == 3);
    CHECK(core::get<3>(all) == "four");

    core::get<2>(all) = 30;
    const auto copy = all;
    CHECK(core::get<0>(copy) == 1);
    CHECK(core::get<2>(copy) == 30);
    static_assert(std::is_same_v<decltype(core::get<3>(copy)), const std::string&>);
    static_assert(std::is_same_v<decltype(core::get<3>(all)), std::string&>);
}

TEST_CASE("core/pack: constants and empty packs", "[core]") {
    constexpr core::pack<int, char> two{7, 'x'};
    static_assert(core::get<0>(two) == 7 && core::get<1>(two) == 'x');
    static_assert(core::pack<>::size == 0);
    static_assert(std::is_empty_v<core::pack<>>);
    CHECK(core::get<1>(core::pack<int, char>{two}) == 'x');
}

TEST_CASE("core/pack: loops over numbers known to the compiler", "[core]") {
    std::vector<std::size_t> up, down;
    core::for_each_index<5>([&](auto index) {
        static_assert(decltype(index)::value < 5);
        up.push_back(index);
    });
    core::for_each_index_reversed<5>([&](auto index) { down.push_back(index); });
    CHECK(up == std::vector<std::size_t>{0, 1, 2, 3, 4});
    CHECK(down == std::vector<std::size_t>{4, 3, 2, 1, 0});
    core::for_each_index<0>([&](auto) { up.clear(); });
    core::for_each_index_reversed<0>([&](auto) { up.clear(); });
    CHECK(up.size() == 5);
}
