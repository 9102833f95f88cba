// SPDX-License-Identifier: BSD-3-Clause
// Choices among compressors are for every_step, where dense layers have owners of strips. The header of the choices is
// missing here.
// build error: lockstep: a compressor has slot_count, name, settings
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/adaptive.hpp"
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
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .compressor = ls::compress::adaptive{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
