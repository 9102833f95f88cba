// SPDX-License-Identifier: BSD-3-Clause
// Frozen layers at a parameter server, whose runs could not be replayed.
// build error: lockstep: a run of sync::parameter_server is replayed by sync::asynchronous, which takes no freeze: use sync::every_step\{\}, or leave freeze out
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/freeze.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<20>{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::freeze{1, ls::optim::sgd{}},
                                        .sync = ls::sync::parameter_server{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
