// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/schedule.hpp"

#include <catch2/catch.hpp>

namespace collectives = lockstep::collectives;
using collectives::in_data;
using collectives::in_work;

TEST_CASE("collectives/schedule: counts what is written, and nothing for empty ranges", "[collectives]") {
    collectives::schedule program{"example", true};
    program.send(1, collectives::in_data(0, 10));
    program.send(2, collectives::in_data(10, 0));
    program.receive(1, collectives::in_work(5, 7));
    program.add(in_data(20, 7), collectives::in_work(5, 7));
    program.copy(in_data(0, 0), in_work(0, 0));
    program.end_round();
    program.end_round();
    CHECK(program.rounds().size() == 1);
    CHECK(program.sent() == collectives::traffic{1, 10});
    CHECK(program.received() == collectives::traffic{1, 7});
    CHECK(program.added() == 7);
    CHECK(program.data_size() == 27);
    CHECK(program.work_size() == 12);
    CHECK(program.locals().size() == 1);
}

TEST_CASE("collectives/schedule: neighbouring operations become one where that changes nothing", "[collectives]") {
    collectives::schedule program{"example", true};
    program.add(collectives::in_data(0, 4), collectives::in_work(0, 4));
    program.add(collectives::in_data(4, 4), collectives::in_work(4, 4));
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

TEST_CASE("collectives/schedule: one program after another", "[collectives]") {
    collectives::schedule first{"first", true};
    first.send(1, collectives::in_data(0, 3));
    first.receive(1, collectives::in_work(0, 3));
    first.add(collectives::in_data(0, 3), collectives::in_work(0, 3));
    collectives::schedule second{"second", false};
    second.receive(2, in_work(0, 5));
    second.copy(in_data(0, 5), in_work(0, 5));
    second.end_round();
    second.send(3, in_data(2, 2));
    second.end_round();
    const collectives::schedule both = collectives::schedule{first}.then(second, 100);
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
    CHECK(collectives::schedule{"", true, 3}
              .then(collectives::schedule{"", true, 5})
              .then(collectives::schedule{"", true, 4})
              .elements() == 5);
    CHECK(collectives::schedule{}.then(first).invariant());
    CHECK(collectives::schedule{}.then(first).name() == "first");
}

TEST_CASE("collectives/schedule: ranges overlap where they share an element", "[collectives]") {
    CHECK(collectives::overlap(collectives::in_data(0, 4), collectives::in_data(3, 1)));
    CHECK_FALSE(collectives::overlap(collectives::in_data(0, 4), collectives::in_data(4, 4)));
    CHECK_FALSE(collectives::overlap(in_data(0, 4), collectives::in_work(0, 4)));
}

TEST_CASE("collectives/schedule: a range that ends beyond what a program can have is an error", "[collectives]") {
    collectives::schedule one{"", true};
    CHECK_THROWS_WITH(one.send(1, collectives::in_data(1, ~std::size_t{0})),
                      Catch::Contains("elements of a schedule: 1 + 18446744073709551615"));
}
