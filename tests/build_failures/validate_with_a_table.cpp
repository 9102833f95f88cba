// SPDX-License-Identifier: BSD-3-Clause
// A table of counts after each epoch, where observers keep numbers by name.
// build error: lockstep: validate keeps metrics that are one number each; take trainer.evaluate.. for others
#include <boost/mpi/environment.hpp>
#include <cstdint>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/metrics/confusion_matrix.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    const std::vector<float> x(8 * 64);
    const std::vector<std::int32_t> y(64);
    const auto set = ls::data::in_memory<ls::tensor::shape<8>, ls::tensor::classes<2>>(x, y);
    trainer.fit(set, ls::epochs{1}, ls::validate{set, ls::metrics::confusion_matrix{}});
}
