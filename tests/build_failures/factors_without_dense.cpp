// SPDX-License-Identifier: BSD-3-Clause
// A network in which no layer has factors.
// build error: lockstep: the network has no dense layer, and no other layer has factors; leave .factors out
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, conv<10, 5>{}, global_mean_pool{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .factors = ls::sync::factors{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
