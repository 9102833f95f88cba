// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/watch/watch.hpp"

#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace core = lockstep::core;

namespace {

/// What this rank threw, and whether it had heard of it from another.
struct ending {
    std::string text;
    bool remote = false;
};
template <class F>
std::optional<ending> ending_of(F&& f) {
    try {
        f();
    } catch (const comm::remote_failure& failure) {
        return ending{failure.text(), true};
    } catch (const comm::stalled& failure) {
        return ending{failure.what(), false};
    }
    return std::nullopt;
}

void wait_for(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

/// A sum of n ones on all ranks.
struct sum {
    explicit sum(const comm::group& ranks, std::string_view name = "ones", std::size_t n = 100)
        : of{ranks.size()},
          run{ranks.named(name), of(ranks.rank(), ranks.size(), n)},
          data(of.data_size(ranks.rank(), ranks.size(), n), 1.0F),
          work(run.program().work_size()) {}
    collectives::tree_all_reduce of;
    comm::operation<float> run;
    std::vector<float> data, work;
};

/// All ranks, in every test: they synchronise here when one has left what the others wait in.
std::size_t last(const comm::group& ranks) { return ranks.size() - 1; }

}  // namespace

TEST_CASE("comm/watch: a slow rank only slows, and leaves nothing behind", "[comm]") {
    for (int round = 0; round < 3; ++round) {
        const comm::group ranks{boost::mpi::communicator{}};
        sum one{ranks};
        if (ranks.rank() == last(ranks)) wait_for(std::chrono::milliseconds{120});
        one.run.run(one.data, one.work);
        // With one node of the tree on each rank there is one vector of data.
        CHECK(one.data[0] == static_cast<float>(ranks.size()));
        if (ranks.rank() == 0) wait_for(std::chrono::milliseconds{120});
        CHECK(ranks.gather_all(ranks.rank()).size() == ranks.size());
    }
}

TEST_CASE("comm/watch: ranks that wait in different calls are told at once, each with the place of all", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    const comm::group ranks{boost::mpi::communicator{}};
    ranks.aborts().set_timeout(std::chrono::seconds{0});
    sum first{ranks, "first"}, second{ranks, "second"};
    const bool bad = ranks.rank() == last(ranks);
    const auto found = ending_of([&] {
        sum& mine = bad ? second : first;
        mine.run.run(mine.data, mine.work);
    });
    const auto texts = survivors.gather_all(std::string_view{found ? found->text : ""});
    for (const auto& text : texts) {
        CHECK_THAT(text, Catch::Matchers::Contains("wait in different calls; make the same calls in the same order"));
        CHECK_THAT(text, Catch::Matchers::Contains(core::text("\n    rank ", last(ranks), ": ")));
        CHECK_THAT(text, Catch::Matchers::Contains("#1 of 'first' at comm_watch.cpp:"));
        CHECK_THAT(text, Catch::Matchers::Contains("#1 of 'second' at comm_watch.cpp:"));
    }
}

TEST_CASE("comm/watch: calls that look alike are said to be of different trainers or groups", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    const comm::group ranks{boost::mpi::communicator{}};
    ranks.aborts().set_timeout(std::chrono::seconds{0});
    sum first{ranks, "rows"}, second{ranks, "rows"};
    const auto found = ending_of([&] {
        sum& mine = ranks.rank() == last(ranks) ? second : first;
        mine.run.run(mine.data, mine.work);
    });
    for (const auto& text : survivors.gather_all(std::string_view{found ? found->text : ""}))
        CHECK_THAT(text, Catch::Matchers::Contains(" wait in different calls, of different trainers or groups; "
                                                   "make the same calls in the same order"));
}

TEST_CASE("comm/watch: a wait ends after the timeout, and names who gives no answer", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    const comm::group ranks{boost::mpi::communicator{}};
    const boost::mpi::communicator world;
    constexpr int given_up = 1;
    ranks.aborts().set_timeout(std::chrono::duration<double>{1});
    sum one{ranks};
    const auto found = ending_of([&] {
        if (ranks.rank() == last(ranks)) {
            // In code that knows nothing of lockstep, until the others have given up.
            for (int rank = 0; rank + 1 < world.size(); ++rank) world.recv(rank, given_up);
            for (;;) ranks.check();
        }
        one.run.run(one.data, one.work);
    });
    if (ranks.rank() != last(ranks)) world.send(world.size() - 1, given_up);
    const auto texts = survivors.gather_all(std::string_view{found ? found->text : ""});
    CHECK(found->remote == (ranks.rank() != 0));
    for (const auto& text : texts) {
        CHECK_THAT(text, Catch::Matchers::StartsWith("lockstep: rank 0 has waited 1 s for rank"));
        CHECK_THAT(text, Catch::Matchers::Contains(core::text("\n    rank ", last(ranks), ": no answer: ")));
        CHECK_THAT(text, Catch::Matchers::Contains("at comm_watch.cpp:"));
        CHECK(text == texts[0]);
    }
}

TEST_CASE("comm/watch: a rank that has destroyed what others wait in has left", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    std::optional<comm::group> ranks{boost::mpi::communicator{}};
    const std::size_t bad = last(*ranks);
    std::optional<ending> found;
    {
        sum one{*ranks};
        if (ranks->rank() != bad) found = ending_of([&] { one.run.run(one.data, one.work); });
    }
    ranks.reset();
    const auto texts = survivors.gather_all(std::string_view{found ? found->text : ""});
    for (std::size_t rank = 0; rank < bad; ++rank)
        CHECK_THAT(texts[rank], Catch::Matchers::Contains(core::text("rank ", bad, " has left what others wait for")));
}

TEST_CASE("comm/watch: messages of another length than expected are refused", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    for (const bool longer : {false, true}) {
        const comm::group ranks{boost::mpi::communicator{}};
        collectives::schedule program{"a message", true};
        if (ranks.rank() == 0) program.send(1, collectives::in_data(0, longer ? 8 : 4));
        if (ranks.rank() == 1) program.receive(0, collectives::in_data(0, longer ? 4 : 8));
        program.end_round();
        std::vector<float> data(8);
        comm::operation<float> once{ranks, program};
        std::string text;
        try {
            once.run(data, {});
        } catch (const core::error& failure) {
            text = failure.what();
        }
        const auto texts = survivors.gather_all(std::string_view{text});
        CHECK_THAT(texts[1], Catch::Matchers::StartsWith("lockstep: rank 0 sent ") &&
                                 Catch::Matchers::Contains(" bytes to rank 1, which expected ") &&
                                 Catch::Matchers::Contains("a message #1 at comm_watch.cpp:"));
    }
}

TEST_CASE("comm/watch: the environment says how long a wait may last", "[comm]") {
    const char* before = std::getenv("LOCKSTEP_TIMEOUT");
    const std::string kept = before == nullptr ? "" : before;
    const auto with = [](const char* text) {
        ::setenv("LOCKSTEP_TIMEOUT", text, 1);
        return comm::default_timeout().count();
    };
    CHECK(with("") == 60);
    CHECK(with("0") == 0);
    CHECK(with("2.5") == 2.5);
    for (const char* wrong : {"soon", "5 minutes", "-1", "nan", "inf"})
        CHECK_THROWS_WITH(with(wrong), Catch::Matchers::Contains("LOCKSTEP_TIMEOUT is '"));
    ::unsetenv("LOCKSTEP_TIMEOUT");
    CHECK(comm::default_timeout().count() == 60);
    if (!kept.empty()) ::setenv("LOCKSTEP_TIMEOUT", kept.c_str(), 1);
}

TEST_CASE("comm/watch: no two groups have one number, however they were divided", "[comm]") {
    const comm::group all{boost::mpi::communicator{}};
    const comm::group one = all.split(0, all.rank()), other = all.split(0, all.rank()),
                      parity = all.split(all.rank() % 2, all.rank());
    if (all.size() == 1) return;
    CHECK(one.record().id != other.record().id);
    CHECK(one.record().id != parity.record().id);
    CHECK(other.record().id != parity.record().id);
    const auto ids = one.gather_all(one.record().id);
    CHECK(std::all_of(ids.begin(), ids.end(), [&](std::uint64_t id) { return id == ids[0]; }));
}
