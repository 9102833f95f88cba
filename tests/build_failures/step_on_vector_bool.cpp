// SPDX-License-Identifier: BSD-3-Clause
// A std::vector<bool> has no pointer to its elements.
// build error: lockstep: a container has data.., a pointer to its numbers, and size..; copy a vector<bool> or an xtensor expression first
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
    const std::vector<float> x(8 * 64), y(2 * 64);
    const std::vector<bool> bits(2 * 64);
    return trainer.step(x, bits).samples == 64 ? 0 : 1;
}
