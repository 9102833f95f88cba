// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 4
// A checkpoint that a thread could not write ends a fit() on all ranks, and nothing is under way then; ranks wait for
// one with a slow disk.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "equivalence/shared_folder.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"
#include "training/large_weights.hpp"

/// The disk is full for all threads but this one.
static std::atomic<bool> is_full{false};
/// The next call takes so many seconds.
static std::atomic<unsigned> slow{0};
static pthread_t work;
extern "C" int fdatasync(int file);
extern "C" int fsync(int file) {
    if (const unsigned seconds = slow.exchange(0); seconds > 0) ::sleep(seconds);
    if (is_full.load() && ::pthread_equal(work, ::pthread_self()) == 0) return errno = ENOSPC, -1;
    return ::fdatasync(file);
}

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;

/// A handler of the last rank has noted a signal after step 8.
struct asks_after_step_8 {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    bool mine;
    void on_step(const ls::report::step_event& event) const {
        if (mine && event.step == 8) ls::core::stop_request::ask(SIGUSR1);
    }
};

}  // namespace

TEST_CASE("one rank looks at the weights after a checkpoint that a thread could not write", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    work = ::pthread_self();
    const bool is_last = world.rank() + 1 == world.size();
    for (int trial = 0; trial < 3; ++trial) {
        ls::trainer trainer{world, support::large_recipe()}, whole{world, support::large_recipe()};
        is_full = is_last;
        CHECK_THROWS_WITH(trainer.fit(support::large_set(), ls::steps{8}, ls::checkpoint{folder.path, 2, 1, true}),
                          Catch::Contains("cannot write") && Catch::Contains("state.safetensors"));
        is_full = false;
        const std::uint64_t steps = trainer.report().steps;
        CHECK(steps >= 4);
        // Alone: the others have gone on to something else.
        const std::uint64_t hash = world.rank() == 0 ? trainer.weights_hash() : 0;
        world.barrier();
        whole.fit(support::large_set(), ls::steps{steps});
        const std::uint64_t expected = whole.weights_hash();
        if (world.rank() == 0) CHECK(hash == expected);
        // The run may go on.
        trainer.fit(support::large_set(), ls::until_step{8}, ls::checkpoint{folder.path, 8, 1, true});
        whole.fit(support::large_set(), ls::until_step{8});
        CHECK(trainer.weights_hash() == whole.weights_hash());
        folder.clear();
    }
}

TEST_CASE("a signal after the last step waits for what a thread writes, and saves what came after it", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    work = ::pthread_self();
    for (const std::uint64_t every : {6U, 8U}) {
        ls::trainer trainer{world, support::large_recipe()}, next{world, support::large_recipe()};
        CHECK_THROWS_AS(trainer.fit(support::large_set(), ls::epochs{1}, ls::checkpoint{folder.path, every, 0, true},
                                    asks_after_step_8{world.rank() + 1 == world.size()}),
                        ls::core::interrupted);
        ls::core::stop_request::ask(0);
        const auto is_there = [&](const char* name) { return std::filesystem::exists(folder.path + name); };
        CHECK(is_there("/step-6") == (every == 6));
        CHECK(is_there("/step-8"));
        CHECK_FALSE(is_there("/step-8.2"));
        next.resume(folder.path);
        CHECK(next.report().steps == 8);
        CHECK(next.state_hash() == trainer.state_hash());
        folder.clear();
    }
}

TEST_CASE("what a thread writes is where its run was asked to, wherever the program has gone", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    const std::filesystem::path before = std::filesystem::current_path();
    ls::trainer trainer{world, support::large_recipe()};
    std::filesystem::current_path(folder.path);
    const std::string here = std::filesystem::current_path();
    const auto under_way = trainer.save_behind("runs");
    std::filesystem::current_path("/");
    CHECK(under_way->commit(0) == here + "/runs/step-0");
    CHECK(std::filesystem::exists(folder.path + "/runs/step-0/manifest.json"));
    std::filesystem::current_path(before);
}

TEST_CASE("ranks wait for one whose disk takes longer than their timeout", "[training]") {
    const mpi::communicator world;
    if (world.size() != 2) return;
    const support::shared_folder folder;
    work = ::pthread_self();
    auto recipe = support::large_recipe();
    recipe.timeout = std::chrono::seconds{2};
    constexpr unsigned longer = 4;
    ls::trainer trainer{world, recipe};
    trainer.fit(support::large_set(), ls::steps{2});
    const auto be_slow = [&] { slow = world.rank() == 0 ? longer : 0; };
    be_slow();
    CHECK_NOTHROW(trainer.save(folder.path + "/new"));  // while rank 0 makes the folder
    CHECK(slow == 0);
    be_slow();
    CHECK_NOTHROW(trainer.save(folder.path + "/new"));
    CHECK(slow == 0);
    be_slow();
    CHECK_NOTHROW(trainer.save_weights(folder.path + "/net.safetensors"));
    CHECK(slow == 0);
    const auto under_way = trainer.save_behind(folder.path);
    be_slow();
    trainer.fit(support::large_set(), ls::steps{2});
    CHECK_NOTHROW(under_way->commit(2));
    slow = 0;
    // A step has its usual limit again.
    if (world.rank() == 0) ::sleep(longer);
    const auto step = [&] { trainer.fit(support::large_set(), ls::steps{1}); };
    if (world.rank() == 0)
        CHECK_THROWS_AS(step(), ls::comm::remote_failure);
    else
        CHECK_THROWS_WITH(step(), Catch::Contains("rank 1 has waited 2 s"));
}
