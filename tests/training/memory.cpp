// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2
// The memory that a trainer plans is what its process takes: within a tenth, over messages and through shared memory.
#include <catch2/catch.hpp>
#include <cstddef>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "equivalence/support.hpp"

namespace {

using namespace support;

/// A line of /proc/self/status that is in kilobytes, in bytes: VmRSS what lies in memory now, VmHWM the most so far.
[[maybe_unused]] std::size_t of_process(const std::string& name) {
    std::ifstream status{"/proc/self/status"};
    for (std::string word; status >> word; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
        if (std::size_t kilobytes = 0; word == name + ":" && status >> kilobytes) return kilobytes * 1024;
    return 0;
}

auto recipe(const auto& model, std::size_t batch, ls::transport transport) {
    return ls::plan{.model = model,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::momentum{.beta = 0.9},
                    .schedule = ls::optim::constant{.rate = 0.001},
                    .batch = batch,
                    .transport = transport};
}

/// Most of it activations, with some tens of megabytes of weights, gradients and velocities.
constexpr auto wide =
    ls::sequential{ls::input<12, 12, 1>,  ls::layers::conv<32, 3>{}, ls::layers::relu{}, ls::layers::max_pool<2>{},
                   ls::layers::flatten{}, ls::layers::dense<1024>{}, ls::layers::relu{}, ls::layers::dense<10>{}};

}  // namespace

TEST_CASE("training/memory: a process takes what its trainer has planned", "[training]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    WARN("not checked: the shadow memory of the sanitizer counts, too");
#else
    const mpi::communicator world;
    const samples<> all{8192};
    for (const auto transport : {ls::transport::messages, ls::transport::shared_memory}) {
        if (world.size() == 1 && transport == ls::transport::shared_memory) continue;
        ls::trainer small{world,
                          recipe(net, 64, transport)};  // what every program takes once: MPI's buffers, threads, code
        small.fit(all.set(), ls::steps{2});
        const std::size_t before = of_process("VmRSS");
        REQUIRE(before > 0);

        ls::trainer trainer{world, recipe(wide, 4096, transport)};
        trainer.fit(all.set(), ls::steps{2});
        (void)trainer.evaluate(all.set());
        const std::size_t planned = trainer.memory_bytes();
        // The most so far is that of the first trainer from then on.
        const std::size_t taken = of_process(transport == ls::transport::messages ? "VmHWM" : "VmRSS") - before;
        REQUIRE(planned > 70'000'000);
        INFO("planned " << planned << ", taken " << taken << " bytes, " << trainer.transport());
        CHECK(static_cast<double>(taken) > 0.9 * static_cast<double>(planned));
        CHECK(static_cast<double>(taken) < 1.1 * static_cast<double>(planned));
    }
#endif
}
