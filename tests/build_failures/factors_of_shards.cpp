// SPDX-License-Identifier: BSD-3-Clause
// Factors of dense layers that are cut over ranks.
// build error: lockstep: factors are not defined for networks that a partition has cut; leave .factors or .partition out
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .partition = ls::partition::model<2>{},
                                        .factors = ls::sync::factors{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
