// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/send_order.hpp"

#include <catch2/catch.hpp>
#include <utility>

using lockstep::comm::send_entry;
using lockstep::comm::send_order;

TEST_CASE("comm/send_order: one that yields sees itself and what is more urgent, and only while that is in flight",
          "[comm]") {
    send_order order{100};
    send_entry late{{&order, 5}}, soon{{&order, 1}}, soon_too{{&order, 1}}, free{{}};
    CHECK_FALSE(late.yields());
    late.enter();
    late.handed_over(90);
    CHECK_FALSE(late.yields());  // nothing is more urgent
    soon.enter();
    soon.enter();  // the next round
    soon_too.enter();
    CHECK(late.yields());
    CHECK_FALSE(soon.yields());
    CHECK_FALSE(soon_too.yields());
    CHECK_FALSE(free.yields());
    CHECK(late.admits(10));
    CHECK_FALSE(late.admits(11));
    CHECK(soon.admits(100));
    soon.handed_over(30);
    CHECK_FALSE(late.admits(1));
    CHECK(soon_too.admits(70));
    CHECK_FALSE(soon_too.admits(71));
    late.received(60);
    CHECK(late.admits(40));
    CHECK_FALSE(late.admits(41));
    soon.received(10);
    soon.leave();  // the rest of it counts no more
    CHECK(late.yields());
    CHECK(late.admits(70));
    soon_too.leave();
    CHECK_FALSE(late.yields());
}

TEST_CASE("comm/send_order: an entry that moved or went leaves nothing behind", "[comm]") {
    send_order order{100};
    send_entry late{{&order, 1}};
    {
        send_entry first{{&order, 0}};
        first.enter();
        first.handed_over(80);
        send_entry second{std::move(first)};
        first.leave();
        CHECK(late.yields());
        CHECK_FALSE(late.admits(21));
    }
    CHECK_FALSE(late.yields());
    CHECK(late.admits(100));
}
