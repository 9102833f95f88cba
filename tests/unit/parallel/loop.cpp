// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/parallel/loop.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace parallel = lockstep::parallel;
using parallel::block;

namespace {

std::vector<std::size_t> sizes() {
    std::vector<std::size_t> out{97, 128, 255, 1000, 4096, 4097};
    for (std::size_t n = 0; n <= 40; ++n) out.push_back(n);
    return out;
}

}  // namespace

TEST_CASE("parallel/loop: the parts of a split follow one another, cover everything, and are cut at the grain",
          "[parallel]") {
    for (const std::size_t n : sizes())
        for (std::size_t parts = 1; parts <= 9; ++parts)
            for (const std::size_t grain : {1, 2, 3, 8, 64}) {
                INFO("n " << n << " parts " << parts << " grain " << grain);
                const std::size_t units = (n + grain - 1) / grain;
                std::size_t at = 0;
                for (std::size_t part = 0; part < parts; ++part) {
                    const block one = parallel::split(n, parts, part, grain);
                    REQUIRE(one.first == at);
                    REQUIRE(one.last >= one.first);
                    REQUIRE((one.last % grain == 0 || one.last == n));
                    // As equal as possible: floor or ceiling of units / parts.
                    const std::size_t mine = (one.size() + grain - 1) / grain;
                    REQUIRE(mine >= units / parts);
                    REQUIRE(mine <= (units + parts - 1) / parts);
                    at = one.last;
                }
                REQUIRE(at == n);
            }
}

TEST_CASE("parallel/loop: blocks", "[parallel]") {
    static_assert(block{3, 7}.size() == 4 && !block{3, 7}.empty() && block{3, 3}.empty());
    static_assert(block{3, 7} == block{3, 7} && block{3, 7} != block{3, 8});
    static_assert(parallel::split(10, 3, 0) == block{0, 3} && parallel::split(10, 3, 1) == block{3, 6} &&
                  parallel::split(10, 3, 2) == block{6, 10});
    CHECK(parallel::split(10, 4, 1, 4) == block{0, 4});
}

TEST_CASE("parallel/loop: each index is visited once, whatever the team", "[parallel]") {
    for (int threads = 1; threads <= 5; ++threads)
        for (const std::size_t n : sizes())
            for (const std::size_t grain : {1, 3, 64}) {
                INFO("threads " << threads << " n " << n << " grain " << grain);
                std::vector<std::atomic<int>> visits(n);
                std::atomic<std::size_t> calls{0}, empty{0}, uneven{0};
                parallel::for_blocks({threads}, n, grain, [&](block mine) {
                    ++calls;
                    empty += mine.empty();
                    uneven += mine.first % grain != 0 || (mine.last % grain != 0 && mine.last != n);
                    for (std::size_t i = mine.first; i < mine.last; ++i) ++visits[i];
                });
                REQUIRE(empty == 0);
                REQUIRE(uneven == 0);
                REQUIRE(calls <= static_cast<std::size_t>(threads));
                if (n == 0) REQUIRE(calls == 0);
                for (const auto& count : visits) REQUIRE(count == 1);
            }
}

TEST_CASE("parallel/loop: for_each visits each index once, each thread a run of them", "[parallel]") {
    for (const int threads : {1, 2, 3, 8})
        for (const std::size_t n : {0, 1, 2, 7, 8, 100}) {
            std::vector<int> visits(n);
            std::vector<std::thread::id> who(n);
            parallel::for_each({threads}, n, [&](std::size_t index) noexcept {
                ++visits[index];
                who[index] = std::this_thread::get_id();
            });
            for (const int count : visits) CHECK(count == 1);
            if (n == 0 || !parallel::has_threads) continue;
            const auto members = static_cast<std::size_t>(threads);
            for (std::size_t part = 0; part < members; ++part) {
                const parallel::block mine = parallel::split(n, members, part);
                for (std::size_t index = mine.first; index < mine.last; ++index) CHECK(who[index] == who[mine.first]);
            }
            // The last index is another thread's as soon as there are two.
            if (threads > 1 && n > 1) CHECK(who.front() != who.back());
        }
}

TEST_CASE("parallel/loop: what a step of for_each throws reaches the caller", "[parallel]") {
    for (const int threads : {1, 2, 3}) {
        std::size_t done = 0;
        const auto fail_at_two = [&](std::size_t index) {
            if (index == 2) throw std::runtime_error{"two"};
            ++done;
        };
        CHECK_THROWS_WITH(parallel::for_each({threads}, 5, fail_at_two), "two");
        CHECK(done == 2);
    }
}

TEST_CASE("parallel/loop: the split is the same every time", "[parallel]") {
    std::mutex lock;
    for (int again = 0; again < 5; ++again) {
        std::vector<block> seen(3);
        parallel::for_blocks({3}, 1000, 8, [&](block mine) {
            const std::scoped_lock held{lock};
            for (std::size_t part = 0; part < 3; ++part)
                if (parallel::split(1000, 3, part, 8) == mine) seen[part] = mine;
        });
        for (std::size_t part = 0; part < 3; ++part) CHECK(seen[part] == parallel::split(1000, 3, part, 8));
    }
}

TEST_CASE("parallel/loop: each member of a team runs once, also inside another team", "[parallel]") {
    for (int threads = 1; threads <= 5; ++threads) {
        std::vector<std::atomic<int>> outer(static_cast<std::size_t>(threads)), inner(3);
        parallel::on_each_thread({threads}, [&](std::size_t thread) {
            ++outer[thread];
            // The runtime may grant one thread only here.
            parallel::on_each_thread({3}, [&](std::size_t deeper) { ++inner[deeper]; });
        });
        for (const auto& count : outer) CHECK(count == 1);
        for (const auto& count : inner) CHECK(count == threads);
    }
}
