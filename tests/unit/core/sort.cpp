// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/sort.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <functional>
#include <vector>

TEST_CASE("core/sort: any length, equal elements", "[core]") {
    for (std::size_t n = 0; n < 70; ++n) {
        std::vector<std::size_t> all(n);
        for (std::size_t i = 0; i < n; ++i) all[i] = i * 37 % 23;
        auto want = all;
        std::sort(want.begin(), want.end(), std::greater<>{});
        lockstep::core::sort(all, std::greater<>{});
        CHECK(all == want);
    }
}
