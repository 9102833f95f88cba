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
    CHECK(error_of([&] {
              ls::reduce::own_memory{ranks, transport::shared_memory, 0, arena};
          }) ==
          "lockstep: compressed gradients cannot go through shared memory; set transport to automatic or messages, or "
          "use compress::none");
    CHECK(ls::reduce::own_memory{ranks, transport::automatic, 0, arena}.text() ==
          "messages: those of a compressor go to every rank");
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
