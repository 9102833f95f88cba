// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 2, 8 ranks
#include <cmath>
#include <iostream>
#include <vector>

#include "lockstep/lockstep.hpp"

namespace mpi = boost::mpi;
namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    // The program owns MPI. The trainer duplicates the communicator.
    mpi::environment environment{argc, argv, mpi::threading::funneled};
    mpi::communicator world;

    ls::trainer trainer{world, ls::plan{
        .model = ls::sequential{ls::input<1>, dense<16>{}, ls::layers::tanh{}, dense<1>{}},
        .loss = ls::mean_squared_error{},
        .optimizer = ls::optim::adam{},
        .schedule = ls::optim::constant{.rate = 0.01},
        .batch = 64,
        .lanes = 8,
    }};
    // 64 oscillators, 8 for each lane; each rank simulates those of its own lanes.
    const auto lanes = trainer.grid().own_lanes();
    const std::size_t first = 8 * lanes.first, count = 8 * lanes.size();
    std::vector<float> phase(count), height(count);
    double loss = 0;
    for (int round = 0; round < 500; ++round) {
        for (std::size_t i = 0; i < count; ++i) {
            phase[i] = static_cast<float>(std::fmod(0.1 * static_cast<double>(first + i) + 0.37 * round, 6.28)) - 3.14F;
            height[i] = std::sin(phase[i]);
        }
        loss = trainer.step(phase, height).loss;  // the rows of all ranks are the minibatch
    }
    const auto hash = trainer.weights_hash();
    if (world.rank() == 0) std::cout << "loss " << loss << "\nweights " << ls::core::hexadecimal(hash) << std::endl;
    return loss < 0.05 ? 0 : 1;
}
