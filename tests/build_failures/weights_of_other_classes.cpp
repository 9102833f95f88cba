// SPDX-License-Identifier: BSD-3-Clause
// Weights for three classes, and a network that tells four apart.
// build error: lockstep: the loss has settings for another number of outputs than the network has: give weighted_softmax_cross_entropy one weight for each class
#include <array>
#include <boost/mpi/environment.hpp>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/weighted_softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<4>{}};
    ls::trainer trainer{
        world, ls::plan{.model = net, .loss = ls::loss::weighted_softmax_cross_entropy{.weights = std::array{1.0, 2.0, 3.0}}}};
}
