// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/give_way.hpp"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
namespace comm = lockstep::comm;

TEST_CASE("ranks that wait for long sleep between looks, for a hundredth of the time and at most 1 ms", "[comm]") {
    CHECK(comm::sleep_after(0ms) == 0ms);
    CHECK(comm::sleep_after(50ms - 1ns) == 0ms);
    CHECK(comm::sleep_after(50ms) == 500us);
    CHECK(comm::sleep_after(80ms) == 800us);
    CHECK(comm::sleep_after(100ms) == 1ms);
    CHECK(comm::sleep_after(24h) == 1ms);
    const auto begun = std::chrono::steady_clock::now();
    comm::give_way(24h);
    CHECK(std::chrono::steady_clock::now() - begun >= 1ms);
}
