// SPDX-License-Identifier: BSD-3-Clause
// one_bit_adam proposes on each worker, and a plan without a compressor has none.
// build error: lockstep: this optimizer proposes on each worker what travels, and without a compressor there are no workers: name one
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::one_bit_adam{.warm_up = 10}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
