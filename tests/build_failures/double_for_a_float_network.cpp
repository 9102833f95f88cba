// SPDX-License-Identifier: BSD-3-Clause
// A network that computes in float is asked about doubles.
// build error: lockstep: x has another element type than the network computes in; set .precision = ls::real<double>\{\} or convert x
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    const std::vector<double> images(32 * 784);
    return trainer.predict(images)(0, 0) > 0 ? 0 : 1;
}
