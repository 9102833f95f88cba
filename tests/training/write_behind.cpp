// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 4
// A checkpoint that a thread could not write ends a fit() on all ranks, and nothing is under way then.
#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"

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
using namespace ls::layers;

constexpr std::size_t width = 512, samples = 64;

/// Weights of megabytes travel in many pieces, and during the next step.
auto recipe() {
    return ls::plan{.model = ls::sequential{ls::input<width>, dense<1024>{}, ls::layers::tanh{}, dense<1>{}},
                    .loss = ls::loss::mean_squared_error{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = 1e-4},
                    .batch = 8,
                    .transport = ls::transport::messages,
                    .timeout = std::chrono::seconds{30}};
}
const std::vector<float> x(samples*width, 0.25F), y(samples, 1.0F);
auto set() { return ls::data::in_memory<ls::tensor::shape<width>, ls::tensor::shape<1>>(x, y); }

}  // namespace

TEST_CASE("one rank looks at the weights after a checkpoint that a thread could not write", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    work = ::pthread_self();
    const bool is_last = world.rank() + 1 == world.size();
    for (int trial = 0; trial < 3; ++trial) {
        ls::trainer trainer{world, recipe()}, whole{world, recipe()};
        is_full = is_last;
        CHECK_THROWS_WITH(trainer.fit(set(), ls::steps{8}, ls::checkpoint{folder.path, 2, 1, true}),
                          Catch::Contains("cannot write") && Catch::Contains("state.safetensors"));
        is_full = false;
        const std::uint64_t steps = trainer.report().steps;
        CHECK(steps >= 4);
        // Alone: the others have gone on to something else.
        const std::uint64_t hash = world.rank() == 0 ? trainer.weights_hash() : 0;
        world.barrier();
        whole.fit(set(), ls::steps{steps});
        const std::uint64_t expected = whole.weights_hash();
        if (world.rank() == 0) CHECK(hash == expected);
        // The run may go on.
        trainer.fit(set(), ls::until_step{8}, ls::checkpoint{folder.path, 8, 1, true});
        whole.fit(set(), ls::until_step{8});
        CHECK(trainer.weights_hash() == whole.weights_hash());
        folder.clear();
    }
}
