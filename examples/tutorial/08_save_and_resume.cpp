// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 2 ranks
#include <iostream>

#include "lockstep/lockstep.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [&](const boost::mpi::communicator& world) {
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<32>{}, relu{}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
        }};
        const std::string folder = argc > 1 ? argv[1] : "";  // none: the run is not saved
        const ls::until_epoch end{2};
        const ls::data::digits training{.count = 3'200};
        if (folder.empty()) {
            trainer.fit(training, end);
        } else {
            if (ls::saving::exists_in(trainer.ranks(), folder)) trainer.resume(folder);
            trainer.fit(training, end, ls::checkpoint{folder, 20, 2}, ls::progress{std::cout, 1, false});
        }
        const auto hash = trainer.weights_hash();
        if (world.rank() == 0) std::cout << "weights " << ls::core::hexadecimal(hash) << std::endl;
        return 0;
    });
}
