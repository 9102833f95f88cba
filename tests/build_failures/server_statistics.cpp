// SPDX-License-Identifier: BSD-3-Clause
// A layer with running statistics at a parameter server.
// build error: lockstep: learners of sync::parameter_server push gradients of whole networks as they are, and no running statistics: use partition::data\{\}, compress::none\{\} and layers without statistics, or sync::every_step\{\}
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<20>{}, batch_norm{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .sync = ls::sync::parameter_server{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
