// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 2, 4 ranks
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<32>{}, relu{}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
            .batch = 64,  // samples of all ranks together
            .lanes = 8,   // the fixed cut of these 64: at least as many lanes as ranks
            .seed = 42,
        }};
        const auto text = ls::summary(trainer);
        if (world.rank() == 0) std::cout << text;
        trainer.fit(ls::data::digits{.count = 3'200}, ls::epochs{1});
        const auto hash = trainer.weights_hash();  // every rank calls it
        if (world.rank() == 0) std::cout << "weights " << ls::core::hexadecimal(hash) << std::endl;
        return 0;
    });
}
