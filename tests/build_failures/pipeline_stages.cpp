// SPDX-License-Identifier: BSD-3-Clause
// More stages than the network has places to cut it.
// build error: lockstep: the network cannot be cut into so many stages: a stage begins where one value alone is read from there on; use fewer stages
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .partition = ls::partition::pipeline<3>{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
