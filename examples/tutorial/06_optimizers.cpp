// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 2 ranks
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        const ls::data::digits training{.count = 3'200};
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<32>{}, relu{}, dropout{.rate = 0.1}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{.smoothing = 0.05},
            .optimizer = ls::optim::weight_decay{.rate = 1e-2, .decoupled = true, .inner = ls::optim::adam{}},
            .schedule = ls::optim::warmup_cosine{.peak = 3e-3, .warmup = 20, .total = 150},
            .clip = ls::sync::clip_by_global_norm{.norm = 1},
            .batch = 64,
        }};
        trainer.fit(training, ls::epochs{3}, ls::progress{std::cout, 1, false});
        const auto hash = trainer.weights_hash();
        if (world.rank() == 0) std::cout << "weights " << ls::core::hexadecimal(hash) << std::endl;
        return 0;
    });
}
