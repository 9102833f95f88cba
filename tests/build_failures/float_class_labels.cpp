// SPDX-License-Identifier: BSD-3-Clause
// A step on class numbers that are no whole numbers.
// build error: lockstep: class labels are whole numbers
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    const std::vector<float> x(64 * 784), y(64);
    return trainer.step(x, y).samples == 64 ? 0 : 1;
}
