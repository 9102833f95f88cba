// SPDX-License-Identifier: BSD-3-Clause
// Compression that changes from step to step is defined for owners of strips that update in the step itself.
// build error: lockstep: compress::adaptive is defined for sync::every_step and partition::data
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .compressor = ls::compress::adaptive{},
                                        .sync = ls::sync::delayed{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
