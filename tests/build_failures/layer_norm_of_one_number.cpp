// SPDX-License-Identifier: BSD-3-Clause
// A normalisation over the single feature of a sample: the feature less its mean is 0.
// build error: lockstep: layer_norm over a single number of a sample is its shift, whatever the number; use at least two, or none
#include "lockstep/layers/layer_norm.hpp"

#include <boost/mpi/environment.hpp>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<1>{}, layer_norm{}, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
}
