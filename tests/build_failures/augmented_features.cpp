// SPDX-License-Identifier: BSD-3-Clause
// A data set of feature rows is augmented like pictures.
// build error: lockstep: pictures are augmented: samples of rows x columns x channels
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/augmented.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    ls::trainer trainer{world, ls::plan{.model = ls::sequential{ls::input<8>, dense<3>{}}, .loss = ls::loss::softmax_cross_entropy{}}};
    const std::vector<float> x(800);
    const std::vector<int> y(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<8>, ls::tensor::classes<3>>(x, y);
    trainer.fit(ls::data::augmented{set, ls::data::flip{}}, ls::epochs{1});
}
