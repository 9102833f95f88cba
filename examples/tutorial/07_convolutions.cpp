// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 2 ranks
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        constexpr auto net = ls::sequential{
            ls::input<28, 28, 1>,                                        // rows, columns, channels
            conv<8, 5>{}, relu{}, max_pool<2>{},                         // 12 x 12 x 8
            ls::residual{conv<8, 3, conv_options{.padding = 1}>{}, relu{}},
            batch_norm{}, relu{}, global_mean_pool{},                    // 8 features
            dense<10>{},
        };
        ls::trainer trainer{world, ls::plan{
            .model = net,
            .loss = ls::softmax_cross_entropy{},
            .batch = 64,
        }};
        trainer.fit(ls::data::digits{.count = 1'280}, ls::epochs{1}, ls::progress{std::cout});
        const auto hash = trainer.weights_hash();
        if (world.rank() == 0) std::cout << "weights " << ls::core::hexadecimal(hash) << std::endl;
        return 0;
    });
}
