// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
// A short complete program: a network, how to train it, and how to spread it over ranks. Each rank has half of the dense
// layers, and gradients are compressed. It runs on an even number of ranks: `mpirun -n 2 smallest`.
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace mpi = boost::mpi;
namespace ls = lockstep;
namespace part = ls::partition;
using namespace ls::layers;

int main(int argc, char** argv) {
    mpi::environment env{argc, argv, mpi::threading::funneled};
    mpi::communicator world;

    constexpr auto net = ls::sequential{
        ls::input<28, 28, 1>,  // rows, columns, channels: memory order
        conv<8, 5>{}, relu{}, max_pool<2>{},
        conv<16, 5>{}, relu{}, max_pool<2>{},
        flatten{}, dense<64>{}, relu{}, dense<10>{},
    };

    ls::trainer trainer{world, ls::plan{
        .model = net,
        .loss = ls::softmax_cross_entropy{},
        .optimizer = ls::optim::momentum{.beta = 0.9, .nesterov = true},
        .schedule = ls::optim::warmup_cosine{.peak = 0.05, .warmup = 50, .total = 500},
        .partition = part::hybrid{part::data{}, part::model<2>{}},
        .compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}},
        .batch = 64,  // the GLOBAL minibatch, whatever the number of ranks
        .seed = 42,
    }};
    trainer.fit(ls::data::digits{.count = 16'000}, ls::epochs{2}, ls::progress{std::cout});
    return trainer.evaluate(ls::data::digits{.count = 2'000, .first = 1'000'000}).accuracy > 0.95 ? 0 : 1;
}
