// SPDX-License-Identifier: BSD-3-Clause
// The proposals of one_bit_adam would be left out.
// build error: lockstep: an optimizer that proposes what travels, as one_bit_adam, is not decorated
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::weight_decay{.inner = ls::optim::one_bit_adam{}}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
