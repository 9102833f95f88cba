// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/watch/abort_channel.hpp"

#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace core = lockstep::core;

namespace {

template <class F>
std::optional<comm::remote_failure> failure_of(F&& f) {
    try {
        f();
    } catch (const comm::remote_failure& failure) {
        return failure;
    }
    return std::nullopt;
}

const std::string problem = "lockstep: sample 17 of the file has 3 bytes; write it again";

}  // namespace

TEST_CASE("comm/abort_channel: a rank that waits for a failed one throws its text", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    // Messages that fit into MPI's buffers, and messages that wait for their receiver.
    for (const std::size_t n : {1U, 1000U, 2'000'000U}) {
        const comm::group ranks{boost::mpi::communicator{}};
        const std::size_t bad = ranks.size() - 1;
        const collectives::tree_all_reduce collective{ranks.size()};
        std::vector<float> data(collective.data_size(ranks.rank(), ranks.size(), n));
        comm::operation<float> sum{ranks, collective(ranks.rank(), ranks.size(), n)};
        std::vector<float> work(sum.program().work_size());
        if (ranks.rank() == bad) {
            ranks.announce(problem);
            ranks.announce("a second one");
        } else {
            sum.start(data, work);
        }
        const auto failure = failure_of([&] {
            if (ranks.rank() == bad)
                ranks.check();
            else
                sum.finish();
        });
        // A rank whose part needs nothing of the failed one may end its operation; the group tells it afterwards.
        std::optional<comm::remote_failure> later;
        while (!later) later = failure_of([&] { ranks.check(); });
        const auto seen = failure ? failure : later;
        // What was given up stays so.
        for (int again = 0; again < 2 && failure && ranks.rank() != bad; ++again) {
            const auto same = failure_of([&] { again == 0 ? sum.finish() : sum.start(data, work); });
            CHECK((same && same->text() == problem));
            CHECK_FALSE(sum.running());
        }
        (void)survivors.gather_all(0);
        CHECK_FALSE(sum.running());
        CHECK((ranks.rank() == bad || sum.progress() == !failure));  // what was given up never seems to be over
        CHECK(seen->origin() == bad);
        CHECK(seen->text() == problem);
        CHECK(std::string{seen->what()} == "rank " + std::to_string(bad) + ": " + problem);
    }
}

TEST_CASE("comm/abort_channel: polling and gathering see a failure too", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    const comm::group polled{boost::mpi::communicator{}};
    const comm::group gathered{boost::mpi::communicator{}};
    const comm::group divided{boost::mpi::communicator{}};
    std::optional<comm::remote_failure> failures[3];
    std::vector<float> data(64, 1.0F);
    comm::operation<float> sum{polled, collectives::tree_all_reduce{polled.size()}(polled.rank(), polled.size(), 64)};
    std::vector<float> work(sum.program().work_size());
    if (survivors.rank() == 0) {
        for (const auto* ranks : {&polled, &gathered, &divided}) ranks->announce(problem);
    } else {
        sum.start(data, work);
        failures[0] = failure_of([&] {
            while (!sum.poll()) {
            }
        });
        failures[1] = failure_of([&] { (void)gathered.gather_all(1); });
        failures[2] = failure_of([&] { (void)divided.split(0, 0); });
    }
    (void)survivors.gather_all(0);
    // What others sent for a gather that they gave up is none of the next one.
    CHECK(failure_of([&] { (void)gathered.gather_all(2); }));
    (void)survivors.gather_all(0);
    if (survivors.rank() == 0) return;
    CHECK_FALSE(sum.progress());
    for (const auto& failure : failures) {
        REQUIRE(failure);
        CHECK(failure->text() == problem);
        CHECK(failure->origin() == 0);
    }
}

TEST_CASE("comm/abort_channel: a failure reaches every part of a split group, with the rank of the whole", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() < 3) return;
    const std::size_t bad = 1;
    const comm::group part =
        comm::group{boost::mpi::communicator{}}.split(survivors.rank() == bad ? 1 : 0, 0).split(0, survivors.rank());
    (void)survivors.gather_all(0);  // all parts are made: who still divides its own would hear of it there
    std::optional<comm::remote_failure> failure;
    if (survivors.rank() == bad) {
        part.announce(problem);
    } else {
        // The part works without the failed rank, and goes on until it hears of it.
        std::vector<float> data(100, 1.0F);
        comm::operation<float> sum{part, collectives::tree_all_reduce{part.size()}(part.rank(), part.size(), 100)};
        std::vector<float> work(sum.program().work_size());
        while (!failure) {
            failure = failure_of([&] {
                part.check();
                sum.run(data, work);
            });
        }
    }
    (void)survivors.gather_all(0);
    if (survivors.rank() == bad) return;
    CHECK(failure->text() == problem);
    CHECK(failure->origin() == bad);
}

TEST_CASE("comm/abort_channel: a failure after others have left is heard by no other group", "[comm]") {
    const boost::mpi::communicator world;
    const comm::group survivors{world};
    if (survivors.size() < 3) return;
    const bool is_bad = survivors.rank() == 1;
    const auto part = world.split(is_bad ? 1 : 0);
    std::optional<comm::group> left{world};
    (void)left->gather_all(0);
    left->end_together();
    world.barrier();
    // MPI gives the communicator's number to the next one that these ranks make.
    if (!is_bad) left.reset();
    world.barrier();
    if (is_bad) left->announce(problem);
    world.barrier();
    const comm::group next{part};
    CHECK_NOTHROW(next.gather_all(1));
    CHECK_NOTHROW(next.check());
    (void)survivors.gather_all(0);
}

TEST_CASE("comm/abort_channel: who gives up tells of failures in other groups of these ranks", "[comm]") {
    const boost::mpi::communicator world;
    const comm::group survivors{world};
    if (survivors.size() == 1) return;
    const comm::group failed{world}, other{world};
    (void)survivors.gather_all(0);
    if (survivors.rank() == 0) {
        failed.announce(problem);
        world.barrier();
    } else {
        world.barrier();
        other.aborts().set_timeout(std::chrono::milliseconds{300});
        std::string text;
        try {
            (void)other.gather_all(1);
        } catch (const core::error& failure) {
            text = failure.what();
        }
        CHECK_THAT(text, Catch::Contains("rank 0 has failed in another group of these ranks: " + problem));
    }
    world.barrier();
    (void)survivors.gather_all(0);
}

TEST_CASE("comm/abort_channel: long texts are cut, empty ones arrive, several failures are one each", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    const std::string longest(10 * comm::abort_channel::longest, 'x');
    for (const std::string& text : {longest, std::string{}}) {
        const comm::group ranks{boost::mpi::communicator{}};
        if (ranks.rank() == 0) ranks.announce(text);
        std::optional<comm::remote_failure> failure;
        while (!failure) failure = failure_of([&] { ranks.check(); });
        (void)survivors.gather_all(0);
        CHECK(failure->text() == text.substr(0, comm::abort_channel::longest));
        CHECK(failure->origin() == 0);
    }
    const comm::group all_bad{boost::mpi::communicator{}};
    all_bad.announce(std::to_string(all_bad.rank()));
    const auto failure = failure_of([&] { all_bad.check(); });
    (void)survivors.gather_all(0);
    REQUIRE(failure);
    CHECK(failure->origin() == all_bad.rank());
}

TEST_CASE("comm/abort_channel: a rank that is behind goes on until it has passed what the failed rank has", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    const comm::group ranks{boost::mpi::communicator{}};
    std::optional<comm::remote_failure> early, late;
    if (ranks.rank() == 0) {
        ranks.aborts().passed();
        ranks.announce(problem);
        early = late = failure_of([&] { ranks.check(); });
        (void)survivors.gather_all(0);
    } else {
        // The abort has left before any rank is here; it is looked for often enough to have come.
        (void)survivors.gather_all(0);
        for (int look = 0; look < 1000 || !ranks.aborts().failed(); ++look)
            if (!early) early = failure_of([&] { ranks.check(); });
        CHECK_FALSE(early);
        ranks.aborts().passed();
        late = failure_of([&] { ranks.check(); });
    }
    (void)survivors.gather_all(0);
    REQUIRE(late);
    CHECK(late->text() == problem);
    CHECK(late->origin() == 0);
}

TEST_CASE(
    "comm/abort_channel: a rank that is on its way out of a stretch of work leaves it before it hears of a later "
    "failure",
    "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    for (std::size_t turn = 0; turn < 60; ++turn) {
        const comm::group ranks{boost::mpi::communicator{}};
        const std::size_t bad = turn % ranks.size();
        CHECK_FALSE(failure_of([&] { ranks.end_together(); }));
        std::optional<comm::remote_failure> later;
        if (ranks.rank() == bad) ranks.announce(problem);
        while (!later) later = failure_of([&] { ranks.check(); });
        CHECK(later->text() == problem);
        CHECK(later->origin() == bad);
        (void)survivors.gather_all(0);
    }
}
