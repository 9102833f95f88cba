// SPDX-License-Identifier: BSD-3-Clause
// A block that runs again around a layer that a model partition cuts.
// build error: lockstep: a recompute holds layers between which a model partition exchanges values; leave these layers out of it
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, conv<8, 5>{}, max_pool<2>{}, flatten{}, ls::recompute{dense<10>{}}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = ls::partition::model<2>{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
