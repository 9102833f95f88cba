// SPDX-License-Identifier: BSD-3-Clause
// A classification with a single class: its softmax is 1, its loss 0.
// build error: lockstep: the network has fewer outputs than its loss needs: with fewer it trains nothing, as with a softmax over one output, which is always 1
#include <boost/mpi/environment.hpp>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<1>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
}
