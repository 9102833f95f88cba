// SPDX-License-Identifier: BSD-3-Clause
// Workers with weights of their own, and a norm of the gradient of all of them.
// build error: lockstep: this strategy measures no norms, which plan::clip and optimizers such as lars need
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .sync = ls::sync::local_sgd{},
                                        .clip = ls::sync::clip_by_global_norm{1}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
