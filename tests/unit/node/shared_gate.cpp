// SPDX-License-Identifier: BSD-3-Clause
// Decisions of ranks that share memory: threads stand for ranks, on one buffer that is cut into their parts.
#include "lockstep/node/shared_gate.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

namespace node = lockstep::node;

struct parts {
    explicit parts(std::size_t ranks) : memory(ranks * bytes) {}
    node::shared_gate gate(std::size_t rank) {
        std::vector<std::byte*> all;
        for (std::size_t at = 0; at < memory.size(); at += bytes) all.push_back(memory.data() + at);
        node::shared_parts view{rank, all, bytes};
        return {view, {0, 1}};
    }
    static constexpr std::size_t bytes = node::shared_line;
    std::vector<std::byte> memory;
};

}  // namespace

TEST_CASE("node/shared_gate: a turn is decided when all ranks have agreed", "[node]") {
    parts memory{3};
    node::shared_gate gates[] = {memory.gate(0), memory.gate(1), memory.gate(2)};
    for (int turn = 0; turn < 3; ++turn) {
        for (auto& gate : gates) CHECK(gate.agree());
        for (auto& gate : gates) CHECK(gate.is_decided());
    }
    // Too late to withdraw; the next turn has not begun.
    CHECK_FALSE(gates[1].withdraw());
    CHECK(gates[0].agree());
    CHECK_FALSE(gates[0].is_decided());
    CHECK(gates[0].withdraw());
    CHECK(gates[0].withdraw());
    for (int turn = 0; turn < 2; ++turn)
        for (int late = 1; late < 3; ++late) {
            CHECK_FALSE(gates[late].agree());
            CHECK_FALSE(gates[late].is_decided());
        }
}

TEST_CASE("node/shared_gate: without shared memory every turn is decided", "[node]") {
    node::shared_gate gate;
    CHECK(gate.agree());
    CHECK(gate.is_decided());
    CHECK_FALSE(gate.is_shared());
    CHECK(gate.withdraw());
}

TEST_CASE("node/shared_gate: ranks that agree and one that withdraws at the same time see one outcome", "[node]") {
    constexpr std::size_t ranks = 3;
    std::size_t decided = 0, withdrawn = 0;
    std::atomic<std::size_t> torn = 0;
    for (int trial = 0; trial < 2000; ++trial) {
        parts memory{ranks};
        std::atomic<std::size_t> ready{0}, agreed{0}, well{0}, ill{0};
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                auto gate = memory.gate(rank);
                for (++ready; ready < ranks;) std::this_thread::yield();
                agreed += gate.agree() ? 1 : 0;
                const bool gives_up = rank == 0 && gate.withdraw();
                // The others know when no agreement is outstanding: from the word, or because all have said that they
                // agreed.
                for (++ready; ready < 2 * ranks;) std::this_thread::yield();
                (!gives_up && gate.is_decided() && agreed == ranks ? well : ill)++;
                if (gate.is_decided() != (agreed == ranks)) ++torn;
            });
        for (auto& one : threads) one.join();
        decided += well == ranks;
        withdrawn += ill == ranks;
        torn += well != ranks && ill != ranks;
    }
    CHECK(torn == 0);
    CHECK(decided + withdrawn == 2000);
    CHECK(withdrawn > 0);
}
