// SPDX-License-Identifier: BSD-3-Clause
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/reduce/node_memory.hpp"

namespace ls = lockstep;
using ls::reduce::node_memory;
using ls::reduce::transport;

namespace {

template <class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const ls::core::error& failure) {
        return failure.what();
    }
    return {};
}

}  // namespace

TEST_CASE("reduce/memory: the same array of every rank, where a trainer would have its gradients", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    ls::tensor::arena arena;
    node_memory memory{ranks, transport::automatic, 4096, arena};
    CHECK(memory.text() == (ranks.size() == 1 ? "none: one rank" : "shared memory"));
    const auto own = arena.reserve<int>(3);
    const auto common = arena.reserve_shared<int>(5);
    CHECK(arena.bytes() == 128);
    arena.allocate();
    if (ranks.size() == 1) {
        CHECK(memory.parts() == nullptr);
        return;
    }
    REQUIRE(memory.parts() != nullptr);
    CHECK(common.shared);
    CHECK(reinterpret_cast<std::uintptr_t>(arena[common].data()) % ls::simd::alignment == 0);
    arena[own][2] = 7;
    arena[common][4] = 100 + static_cast<int>(ranks.rank());
    (void)ranks.gather_all(0);
    std::vector<int> seen;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) seen.push_back(memory.parts()->of(rank, common)[4]);
    (void)ranks.gather_all(0);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) CHECK(seen[rank] == 100 + static_cast<int>(rank));
    CHECK_THROWS_AS(arena.reserve_shared<int>(2000), ls::core::error);
}

TEST_CASE("reduce/memory: what the plan says, and what the machine permits", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    if (ranks.size() == 1) return;
    ls::tensor::arena arena;
    {
        node_memory memory{ranks, transport::messages, 4096, arena};
        CHECK(memory.parts() == nullptr);
        CHECK(memory.text() == "messages, as the plan says");
    }
    // One rank has less room than the others: all of them do without.
    const std::size_t room = ranks.rank() == 1 ? 5000 : 1'000'000'000;
    const std::string why = ls::core::text("a shared window of ", ranks.size(), " x 4096 bytes and ");
    const std::string remedy = " to spare, but /dev/shm has 5000 left; enlarge it";
    {
        node_memory memory{ranks, transport::automatic, 4096, arena, room};
        CHECK(memory.parts() == nullptr);
        CHECK_THAT(memory.text(), Catch::Matchers::StartsWith("messages: " + why) && Catch::Matchers::Contains(remedy));
        CHECK_FALSE(arena.reserve_shared<int>(5).shared);
    }
    CHECK_THAT(error_of([&] {
                   node_memory{ranks, transport::shared_memory, 4096, arena, room};
               }),
               Catch::Matchers::StartsWith("lockstep: " + why) && Catch::Matchers::Contains(remedy));
}

TEST_CASE("reduce/memory: ranks that share a worker have memory of their own", "[reduce]") {
    using ls::reduce::worker_memory;
    const ls::comm::group ranks{boost::mpi::communicator{}};
    const std::size_t rank = ranks.rank();
    const ls::comm::group pair = ranks.split(rank / 2, rank);  // the last one may be alone
    const std::size_t pairs = (ranks.size() + 1) / 2;
    for (const auto wanted : {transport::automatic, transport::messages, transport::shared_memory}) {
        ls::tensor::arena arena;
        worker_memory none{ranks, ls::comm::group{}, ranks.size(), wanted, 4096, arena};
        CHECK(none.inside() == nullptr);
        CHECK(none.text() ==
              (ranks.size() == 1 ? "none: one rank" : "messages: those of a compressor go to every rank"));
        worker_memory memory{ranks, pair, pairs, wanted, 4096, arena};
        CHECK(memory.parts() == nullptr);
        CHECK((memory.inside() != nullptr) == (pair.size() == 2 && wanted != transport::messages));
        CHECK(memory.text() == (ranks.size() == 1 ? "none: one rank"
                                : wanted == transport::messages
                                    ? "messages, as the plan says"
                                    : "messages between workers, shared memory inside of each"));
        if (memory.inside() == nullptr) continue;
        const auto common = arena.reserve_shared<std::size_t>(1);
        arena[common][0] = 100 + rank;
        (void)pair.gather_all(0);
        CHECK(memory.inside()->of(1 - pair.rank(), common)[0] == 100 + (rank ^ 1U));
        (void)pair.gather_all(0);
    }
    if (ranks.size() == 1) return;
    // All windows of a node share its room: one would fit.
    const std::size_t sharing = ranks.size() / 2 * 2;
    const auto demand = ls::node::shared_window::demand_of(sharing, 4096, 0);
    const std::size_t room = demand.bytes + demand.spare - 1;
    CHECK(ls::node::shared_window::demand_of(2, 4096, 0).fits(room) == (sharing > 2));
    const std::string why = ls::core::text("shared windows of ", sharing, " x 4096 bytes and ");
    const auto with_room = [&](std::size_t mine, transport wanted, std::size_t bytes = 4096) {
        ls::tensor::arena arena;
        const worker_memory memory{ranks, pair, pairs, wanted, bytes, arena, mine};
        return memory.text();
    };
    CHECK_THAT(with_room(room, transport::automatic), Catch::Matchers::StartsWith("messages: " + why));
    CHECK(with_room(1'000'000'000, transport::automatic, 0) == "messages: those of a compressor go to every rank");
    // One rank has less than the others.
    CHECK_THAT(with_room(rank == 1 ? 5000 : 1'000'000'000, transport::automatic),
               Catch::Matchers::StartsWith("messages: " + why));
    const auto failure = error_of([&] { (void)with_room(room, transport::shared_memory); });
    CHECK_THAT(failure, Catch::Matchers::StartsWith("lockstep: " + why) &&
                            Catch::Matchers::Contains(" left; enlarge it (mount"));
}

TEST_CASE("reduce/memory: each rank gives it back when it likes", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    if (ranks.size() == 1) return;
    ls::tensor::arena arena;
    std::optional<node_memory> both[2];
    for (auto& one : both) one.emplace(ranks, transport::shared_memory, std::size_t{1} << 20U, arena);
    ls::node::shared_parts& last = *both[ranks.rank() % 2]->parts();
    both[(ranks.rank() + 1) % 2].reset();
    // What is left can still be used.
    last.mine(ls::tensor::slice<int>{0, 1})[0] = 5;
    CHECK(last.mine(ls::tensor::slice<int>{0, 1})[0] == 5);
}

TEST_CASE("reduce/memory: pages that are not there are an error on all ranks, not a signal", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    if (ranks.size() == 1 || ls::node::shared_segment::free_bytes() == static_cast<std::size_t>(-1)) return;
    ls::tensor::arena arena;
    // More than /dev/shm can ever hold, and a wrong word about what is free.
    const std::size_t bytes = std::size_t{1} << 44U, room = std::size_t{1} << 52U;
    const std::string why = "cannot reserve shared memory in /dev/shm: No space left on device; ";
    CHECK_THAT(error_of([&] {
                   node_memory{ranks, transport::shared_memory, bytes, arena, room};
               }),
               Catch::Matchers::StartsWith("lockstep: rank 0 " + why));
    node_memory memory{ranks, transport::automatic, bytes, arena, room};
    CHECK(memory.parts() == nullptr);
    CHECK_THAT(memory.text(), Catch::Matchers::StartsWith("messages: rank 0 " + why));
}
