// SPDX-License-Identifier: BSD-3-Clause
// same weights on 1, 2 ranks
#include <cstdlib>
#include <iostream>

#include "lockstep/lockstep.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const std::string folder = argc > 1 ? argv[1] : "";  // on a file system that all nodes see
        const char* threads = std::getenv("OMP_NUM_THREADS");
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<64>{}, relu{}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
            .schedule = ls::optim::constant{.rate = 0.02},
            .batch = 64,
            .lanes = 16,  // at most 16 ranks
            .threads = threads != nullptr ? std::strtoul(threads, nullptr, 10) : 1,
        }};
        const std::string text = ls::summary(trainer);
        if (world.rank() == 0) std::cout << text << std::flush;
        if (!folder.empty() && ls::saving::exists_in(trainer.ranks(), folder)) trainer.resume(folder);

        const ls::data::digits training{.count = 3'200}, held_out{.count = 500, .first = 1'000'000};
        const ls::until_epoch end{argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 2};
        if (end.count == 0) throw ls::core::error{"the number of epochs is none", "write 1 or more"};
        if (folder.empty()) trainer.fit(training, end, ls::validate{held_out}, ls::progress{std::cout, 30});
        else trainer.fit(training, end, ls::validate{held_out}, ls::progress{std::cout, 30}, ls::checkpoint{folder, 25, 2});

        const auto hash = trainer.weights_hash();
        if (world.rank() == 0) std::cout << "weights " << ls::core::hexadecimal(hash) << std::endl;
        return 0;
    });
}
