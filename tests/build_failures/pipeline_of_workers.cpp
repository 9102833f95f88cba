// SPDX-License-Identifier: BSD-3-Clause
// Workers with weights of their own in a pipeline.
// build error: lockstep: workers with weights of their own hold whole networks, and this partition cuts them: use partition::data\{\}, or sync::every_step\{\}
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<20>{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .partition = ls::partition::pipeline<2>{},
                                        .sync = ls::sync::local_sgd{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
