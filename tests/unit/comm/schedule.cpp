// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/schedule.hpp"

#include <catch2/catch.hpp>

namespace comm = lockstep::comm;
using comm::in_data;
using comm::in_work;

TEST_CASE("comm/schedule: counts what is written, and nothing for empty ranges", "[comm]") {
    comm::schedule program{"example", true};
    program.send(1, in_data(0, 10));
    program.send(2, in_data(10, 0));
    program.receive(1, in_work(5, 7));
    program.add(in_data(20, 7), in_work(5, 7));
    program.copy(in_data(0, 0), in_work(0, 0));
    program.end_round();
    program.end_round();
    CHECK(program.rounds().size() == 1);
    CHECK(program.sent() == comm::traffic{1, 10});
    CHECK(program.received() == comm::traffic{1, 7});
    CHECK(program.added() == 7);
    CHECK(program.data_size() == 27);
    CHECK(program.work_size() == 12);
    CHECK(program.locals().size() == 1);
}

TEST_CASE("comm/schedule: neighbouring operations become one where that changes nothing", "[comm]") {
    comm::schedule program{"example", true};
    program.add(in_data(0, 4), in_work(0, 4));
    program.add(in_data(4, 4), in_work(4, 4));
    CHECK(program.locals().size() == 1);
    program.add(in_data(8, 4), in_work(12, 4));
    CHECK(program.locals().size() == 2);
    program.copy(in_data(12, 4), in_work(16, 4));
    CHECK(program.locals().size() == 3);
    program.end_round();
    program.copy(in_data(16, 4), in_work(20, 4));
    CHECK(program.locals().size() == 4);
    program.end_round();
    // The second reads what the first has written.
    program.copy(in_data(4, 4), in_data(0, 4));
    program.copy(in_data(8, 4), in_data(4, 4));
    CHECK(program.locals().size() == 6);
    CHECK(program.added() == 12);
}

TEST_CASE("comm/schedule: one program after another", "[comm]") {
    comm::schedule first{"first", true};
    first.send(1, in_data(0, 3));
    first.receive(1, in_work(0, 3));
    first.add(in_data(0, 3), in_work(0, 3));
    comm::schedule second{"second", false};
    second.receive(2, in_work(0, 5));
    second.copy(in_data(0, 5), in_work(0, 5));
    second.end_round();
    second.send(3, in_data(2, 2));
    second.end_round();
    const comm::schedule both = comm::schedule{first}.then(second, 100);
    CHECK(both.name() == "first + second");
    CHECK_FALSE(both.invariant());
    CHECK(both.rounds().size() == 3);
    CHECK(both.sent() == first.sent() + second.sent());
    CHECK(both.received() == first.received() + second.received());
    CHECK(both.sends()[1].what == in_data(102, 2));
    CHECK(both.receives()[1].what == in_work(0, 5));
    CHECK(both.locals()[1].to == in_data(100, 5));
    CHECK(both.data_size() == 105);
    CHECK(both.work_size() == 5);
    CHECK(both.rounds()[2].sends == lockstep::parallel::block{1, 2});
    CHECK(comm::schedule{"", true, 3}.then(comm::schedule{"", true, 5}).then(comm::schedule{"", true, 4}).elements() == 5);
    CHECK(comm::schedule{}.then(first).invariant());
    CHECK(comm::schedule{}.then(first).name() == "first");
}

TEST_CASE("comm/schedule: ranges overlap where they share an element", "[comm]") {
    CHECK(comm::overlap(in_data(0, 4), in_data(3, 1)));
    CHECK_FALSE(comm::overlap(in_data(0, 4), in_data(4, 4)));
    CHECK_FALSE(comm::overlap(in_data(0, 4), in_work(0, 4)));
}

TEST_CASE("comm/schedule: a range that ends beyond what a program can have is an error", "[comm]") {
    comm::schedule one{"", true};
    CHECK_THROWS_WITH(one.send(1, comm::in_data(1, ~std::size_t{0})), Catch::Contains("elements of a schedule: 1 + 18446744073709551615"));
}
