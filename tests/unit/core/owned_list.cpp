// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/owned_list.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace ls = lockstep;

namespace {

/// Neither copied nor moved; says when it is destroyed.
struct watched {
    watched(int of, std::vector<int>& to) : number{of}, gone{&to} {
        if (number < 0) throw std::invalid_argument{"a negative number"};
    }
    watched(const watched&) = delete;
    watched& operator=(const watched&) = delete;
    ~watched() { gone->push_back(number); }

    int number;
    std::vector<int>* gone;
};

}  // namespace

TEST_CASE("core/owned_list: objects stay where they are, and end in order", "[core]") {
    std::vector<int> gone;
    {
        ls::core::owned_list<watched> list;
        CHECK(list.size() == 0);
        std::vector<watched*> places;
        for (int number = 0; number < 100; ++number) {
            watched& made = list.add(number, gone);
            CHECK(made.number == number);
            places.push_back(&made);
        }
        CHECK_THROWS_AS(list.add(-1, gone), std::invalid_argument);
        REQUIRE(list.size() == 100);
        const auto& read = list;
        for (std::size_t index = 0; index < 100; ++index) {
            CHECK(&list[index] == places[index]);
            CHECK(&read[index] == places[index]);
        }
        CHECK(gone.empty());
    }
    REQUIRE(gone.size() == 100);
    for (int number = 0; number < 100; ++number) CHECK(gone[static_cast<std::size_t>(number)] == number);
}
