// SPDX-License-Identifier: BSD-3-Clause
// test on 1 rank:
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<32>{}, relu{}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
            .schedule = ls::optim::constant{.rate = 0.05},
        }};
        trainer.fit(ls::data::digits{.count = 6'400}, ls::epochs{2}, ls::progress{std::cout});
        const auto result = trainer.evaluate(ls::data::digits{.count = 1'000, .first = 1'000'000});
        if (world.rank() == 0) std::cout << "accuracy " << 100 * *result.accuracy << " %\n";
        return result.accuracy > 0.8 ? 0 : 1;
    });
}
