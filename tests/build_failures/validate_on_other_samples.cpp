// SPDX-License-Identifier: BSD-3-Clause
// Training fits, the samples for validation do not.
// build error: lockstep: the samples of the data set do not have the shape of the network.s input
#include <boost/mpi/environment.hpp>
#include <cstdint>
#include <vector>

#include "lockstep/data/digits.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<32, 32, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    const std::vector<float> images(32 * 1024);
    const std::vector<std::int32_t> labels(32);
    const auto own = ls::data::in_memory<ls::tensor::shape<32, 32, 1>, ls::tensor::classes<10>>(images, labels);
    const ls::data::digits test{.count = 1000};
    trainer.fit(own, ls::epochs{1}, ls::validate{test});
}
