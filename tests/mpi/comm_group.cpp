// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/group.hpp"

#include <boost/mpi/cartesian_communicator.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/group.hpp>
#include <boost/mpi/intercommunicator.hpp>
#include <boost/mpi/nonblocking.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace core = lockstep::core;

TEST_CASE("comm/group: every rank sees the values and texts of all", "[comm]") {
    const boost::mpi::communicator world;
    const comm::group ranks{world};
    REQUIRE(ranks.rank() == static_cast<std::size_t>(world.rank()));
    REQUIRE(ranks.size() == static_cast<std::size_t>(world.size()));
    struct pair {
        std::size_t square;
        char letter;
    };
    const auto all = ranks.gather_all(pair{ranks.rank() * ranks.rank(), static_cast<char>('a' + ranks.rank())});
    const auto texts =
        ranks.gather_all(std::string_view{std::string(100 * ranks.rank(), 'x') + std::to_string(ranks.rank())});
    REQUIRE(all.size() == ranks.size());
    REQUIRE(texts.size() == ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        CHECK(all[rank].square == rank * rank);
        CHECK(all[rank].letter == static_cast<char>('a' + rank));
        CHECK(texts[rank] == std::string(100 * rank, 'x') + std::to_string(rank));
    }
    for (const auto& text : ranks.gather_all(std::string_view{})) CHECK(text.empty());
    // Of other lengths on each rank, around those of the parts that travel.
    for (const std::size_t length : {1U, 63U, 64U, 65U, 1023U, 1024U, 1025U, 2047U, 2048U, 2049U, 4096U, 10'000U})
        for (std::size_t longest = 0; longest < ranks.size(); ++longest) {
            const auto text_of = [&](std::size_t rank) {
                std::string out(rank == longest ? length : length * rank / ranks.size(), '\0');
                for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(rank + 7 * i + i / 64);
                return out;
            };
            const auto long_texts = ranks.gather_all(std::string_view{text_of(ranks.rank())});
            for (std::size_t rank = 0; rank < ranks.size(); ++rank) REQUIRE(long_texts[rank] == text_of(rank));
        }
    const std::string own(1 + ranks.rank(), 'c');
    CHECK(ranks.gather_all(own.c_str()).back() == std::string(ranks.size(), 'c'));  // not its address
    CHECK(ranks.gather_all("text").front() == "text");
    const auto hosts = ranks.hosts();
    REQUIRE(hosts.size() == ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) CHECK(hosts[hosts[rank]] == hosts[rank]);
    CHECK(hosts[0] == 0);
}

TEST_CASE("comm/group: split orders by key and outlives its parent", "[comm]") {
    const boost::mpi::communicator world;
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto size = static_cast<std::size_t>(world.size());
    const comm::group reversed = comm::group{world}.split(0, size - rank);
    CHECK(reversed.rank() == size - 1 - rank);
    const comm::group parity = comm::group{world}.split(rank % 2, rank);
    CHECK(parity.size() == (size + 1 - rank % 2) / 2);
    CHECK(parity.rank() == rank / 2);
    const auto members = parity.gather_all(rank);
    for (std::size_t i = 0; i < members.size(); ++i) CHECK(members[i] == 2 * i + rank % 2);
    CHECK_NOTHROW(parity.check());

    std::vector<float> data{static_cast<float>(rank)};
    comm::run<float>(parity, collectives::tree_all_reduce{parity.size()}(parity.rank(), parity.size(), 1), data);
    float sum = 0;
    for (std::size_t other = rank % 2; other < size; other += 2) sum += static_cast<float>(other);
    CHECK(data[0] == sum);
}

TEST_CASE("comm/group: colors and keys beyond the numbers of MPI", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const std::size_t rank = ranks.rank(), large = std::size_t{1} << 32U;
    CHECK(ranks.split(rank * large, 0).size() == 1);
    const comm::group parity = ranks.split(large / 2 + rank % 2, (ranks.size() - rank) * large);
    CHECK(parity.size() == (ranks.size() + 1 - rank % 2) / 2);
    CHECK(parity.rank() == parity.size() - 1 - rank / 2);
    // Equal keys leave the order of ranks.
    CHECK(ranks.split(3, large).rank() == rank);
}

TEST_CASE("comm/group: a rank that comes too late has no group either, and the next one is whole", "[comm]") {
    using namespace std::chrono_literals;
    const boost::mpi::communicator world;
    const comm::group first{world};
    if (first.size() == 1) return;
    const bool is_late = first.rank() == first.size() - 1;
    if (is_late) std::this_thread::sleep_for(1s);
    CHECK_THROWS_AS((comm::group{world, std::source_location::current(), 0.3s}), comm::stalled);
    (void)first.gather_all(0);
    const comm::group again{world};
    (void)again.gather_all(1);
    // Where ranks wait for long they ask each other of the group by its number.
    for (int i = 0; is_late && i < 40; ++i) {
        again.aborts().glance();
        std::this_thread::sleep_for(10ms);
    }
    const auto all = again.gather_all(again.rank());
    for (std::size_t rank = 0; rank < all.size(); ++rank) CHECK(all[rank] == rank);
    // One that may wait for longer waits.
    if (is_late) std::this_thread::sleep_for(1s);
    CHECK((comm::group{world, std::source_location::current(), 0s}.size()) == first.size());
}

TEST_CASE("comm/group: one that is made of a group that has failed hears of it", "[comm]") {
    using namespace std::chrono_literals;
    const boost::mpi::communicator world;
    const comm::group whole{world};
    if (whole.size() == 1) return;
    const comm::group failed{world, std::source_location::current(), 0s};
    (void)whole.gather_all(0);
    if (whole.rank() == 0)
        failed.announce("lockstep: no more; less");
    else
        CHECK_THROWS_WITH(failed.duplicated(std::source_location::current(), 0s), "rank 0: lockstep: no more; less");
    (void)whole.gather_all(0);
}

TEST_CASE("comm/group: its messages are never taken for those of the application", "[comm]") {
    const boost::mpi::communicator world;
    const comm::group ranks{world};
    const int next = (world.rank() + 1) % world.size();
    int got = -1;
    auto waiting = world.irecv(boost::mpi::any_source, boost::mpi::any_tag, got);
    const auto all = ranks.gather_all(world.rank());
    std::vector<float> data(100, 1.0F);
    comm::run<float>(ranks, collectives::tree_all_reduce{ranks.size()}(ranks.rank(), ranks.size(), 100), data);
    auto sending = world.isend(next, 0, world.rank());
    waiting.wait();
    sending.wait();
    CHECK(got == (world.rank() + world.size() - 1) % world.size());
    CHECK(all.back() == world.size() - 1);
    CHECK(data[99] == static_cast<float>(world.size()));
}

TEST_CASE("comm/group: one rank without a communicator", "[comm]") {
    const comm::group alone;
    CHECK(alone.rank() == 0);
    CHECK(alone.size() == 1);
    CHECK(alone.gather_all(5) == std::vector<int>{5});
    CHECK(alone.gather_all(std::string_view{"text"}) == std::vector<std::string>{"text"});
    CHECK(alone.hosts() == std::vector<std::size_t>{0});
    CHECK(alone.split(3, 1).size() == 1);
    CHECK_NOTHROW(alone.check());
    std::vector<float> data{1, 2, 3};
    comm::run<float>(alone, collectives::tree_all_reduce{8}(0, 1, 3), data);
    CHECK(data == std::vector<float>{1, 2, 3});
}

TEST_CASE("comm/group: a null communicator is refused", "[comm]") {
    const boost::mpi::communicator world;
    const int members[] = {0};
    const boost::mpi::communicator first{world, world.group().include(members, members + 1)};
    if (world.rank() == 0)
        CHECK(comm::group{first}.size() == 1);
    else
        CHECK_THROWS_AS(comm::group{first}, core::error);
}

TEST_CASE("comm/group: fingerprints stay in the tags of communicators that were split", "[comm]") {
    const boost::mpi::communicator world;
    const comm::group whole{world}, part = whole.split(whole.rank() % 2, 0), other{world.split(world.rank() % 2)};
    if (whole.over().tags() <= 2 * 32768) return;  // no room for them
    for (const comm::group& one : {whole, part, other}) {
        CHECK(one.over().tags() == whole.over().tags());
        CHECK(one.tag_of(1, 1) != one.tag_of(1, 2));
        CHECK(one.tag_of(0, 1) != one.tag_of(0, 2));
    }
}

TEST_CASE("comm/group: communicators of every kind but those that join two groups", "[comm]") {
    const boost::mpi::communicator world;
    const auto size = static_cast<std::size_t>(world.size());
    CHECK(comm::group{MPI_COMM_SELF}.gather_all(1).size() == 1);
    CHECK(comm::group{boost::mpi::cartesian_communicator{world, boost::mpi::cartesian_topology{{{world.size(), true}}}}}
              .gather_all(1)
              .size() == size);
    CHECK_THROWS_WITH(comm::group{MPI_COMM_NULL}, Catch::Matchers::Contains("that this rank does not belong to"));
    if (size == 1) return;
    const boost::mpi::communicator half = world.split(world.rank() % 2);
    const boost::mpi::intercommunicator joined{half, 0, world, world.rank() % 2 == 0 ? 1 : 0};
    CHECK_THROWS_WITH(comm::group{joined},
                      Catch::Matchers::StartsWith(
                          "lockstep: a group was made of an inter-communicator, which joins two groups of ranks; "));
    CHECK(comm::group{joined.merge(world.rank() % 2 == 0)}.gather_all(1).size() == size);
}
