// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 4
// A checkpoint that a thread could not write ends a fit() on all ranks, and nothing is under way then.
#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "equivalence/shared_folder.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"
#include "training/large_weights.hpp"

/// The disk is full for all threads but this one.
static std::atomic<bool> is_full{false};
static pthread_t work;
extern "C" int fdatasync(int file);
extern "C" int fsync(int file) {
    if (is_full.load() && ::pthread_equal(work, ::pthread_self()) == 0) return errno = ENOSPC, -1;
    return ::fdatasync(file);
}

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;

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
