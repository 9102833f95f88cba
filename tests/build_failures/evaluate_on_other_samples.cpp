// SPDX-License-Identifier: BSD-3-Clause
// A network that was trained on its own samples is evaluated on images of another shape.
// build error: lockstep: the samples of the data set do not have the shape of the network.s input
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<784>, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    return trainer.evaluate(ls::data::digits{.count = 1000}).accuracy > 0.9 ? 0 : 1;
}
