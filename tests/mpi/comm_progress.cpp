// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/progress_thread.hpp"

#include <algorithm>
#include <atomic>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
using comm::progress_thread;
using outcome = progress_thread::outcome;

namespace {

/// Plain numbers, which belong to the thread that has the turn: the thread sanitizer sees where they do not.
struct work {
    int passes = 0;
    int until = 0;  ///< passes that find something to do
    bool fails = false;
    std::thread::id by{};

    static outcome pass(void* self) {
        auto& one = *static_cast<work*>(self);
        ++one.passes;
        one.by = std::this_thread::get_id();
        if (one.fails) throw std::runtime_error{"the pass went wrong"};
        if (one.passes >= one.until) return outcome::nothing_to_do;
        return one.passes % 2 == 0 ? outcome::moved : outcome::nothing_came;
    }
};

/// Waits, in turns with the thread, until it has made so many passes.
void wait_for(progress_thread& thread, const work& of, int passes) {
    for (;;) {
        if (const auto turn = thread.try_turn(); turn && of.passes >= passes) return;
        std::this_thread::yield();
    }
}

}  // namespace

TEST_CASE("comm/progress: the thread works from lend() to take() only, and not where nothing is to do", "[comm]") {
    work of{.until = 50};
    progress_thread thread{work::pass, &of};
    for (int i = 0; i < 100; ++i) thread.ring();
    thread.take();
    CHECK(of.passes == 0);  // it was never lent the turn
    thread.lend();
    wait_for(thread, of, 50);
    thread.take();
    CHECK(of.passes == 50);
    CHECK(of.by != std::this_thread::get_id());
    // A pass that finds nothing is the last one until the next ring.
    thread.lend();
    wait_for(thread, of, 51);
    thread.ring();
    wait_for(thread, of, 52);
    thread.take();
    CHECK(of.passes == 52);
    // Back and forth: nothing is lost, and nothing happens out of turn.
    for (int i = 0; i < 1000; ++i) {
        of.until = of.passes + 3;
        const int before = of.passes;
        thread.lend();
        if (i % 10 == 0) wait_for(thread, of, of.until);
        thread.take();
        if (i % 10 == 0) CHECK(of.passes == before + 3);
        const int after = of.passes;
        thread.ring();
        std::this_thread::yield();
        CHECK(of.passes == after);
    }
}

TEST_CASE(
    "comm/progress: what a pass throws is thrown once by the thread that takes the turn, and the thread does nothing "
    "more",
    "[comm]") {
    for (const bool takes : {false, true}) {
        work of{.until = 1000, .fails = true};
        progress_thread thread{work::pass, &of};
        thread.lend();
        const auto look = [&] {
            for (int i = 0; i < 1'000'000 && takes; ++i) {
                thread.take();
                thread.lend();
                std::this_thread::yield();
            }
            wait_for(thread, of, 1);
        };
        CHECK_THROWS_WITH(look(), "the pass went wrong");
        thread.take();
        CHECK(of.passes == 1);
        thread.lend();
        thread.ring();
        std::this_thread::yield();
        thread.take();
        CHECK(of.passes == 1);
    }
    // No rank has to look.
    work of{.fails = true};
    progress_thread thread{work::pass, &of};
    thread.lend();
}

TEST_CASE("comm/progress: collectives that are submitted end while the owner does something else", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const std::size_t n = 300'000;  // several pieces in flight
    const collectives::tree_all_reduce collective{ranks.size()};
    struct sums {
        comm::operation<float> first, second;
        std::atomic<int> ended{0};
    } all{{ranks, collective(ranks.rank(), ranks.size(), n)}, {ranks, collective(ranks.rank(), ranks.size(), n)}};
    progress_thread thread{[](void* self) {
                               auto& of = *static_cast<sums*>(self);
                               const int ended = of.first.progress() + of.second.progress();
                               of.ended = ended;
                               return ended == 2 ? outcome::nothing_to_do : outcome::nothing_came;
                           },
                           &all};
    const std::size_t size = collective.data_size(ranks.rank(), ranks.size(), n),
                      scratch = all.first.program().work_size();
    std::vector<float> one(size, 1.0F), two(size, 2.0F), work(scratch), more(scratch);
    for (int turn = 0; turn < 3; ++turn) {
        one.assign(size, 1.0F);
        two.assign(size, 2.0F);
        all.ended = 0;
        all.first.start(one, work);
        all.second.start(two, more);
        thread.lend();
        while (all.ended != 2) std::this_thread::yield();
        thread.take();
        const auto lanes = static_cast<float>(ranks.size());
        CHECK(std::count(one.begin(), one.begin() + n, lanes) == static_cast<std::ptrdiff_t>(n));
        CHECK(std::count(two.begin(), two.begin() + n, 2 * lanes) == static_cast<std::ptrdiff_t>(n));
        (void)ranks.gather_all(turn);  // the owner's own messages, in its turn
    }
}
