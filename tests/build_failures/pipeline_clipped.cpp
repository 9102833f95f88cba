// SPDX-License-Identifier: BSD-3-Clause
// Clipping in a pipeline, whose stages know the norms of their own layers.
// build error: lockstep: norms are not defined for the stages of a pipeline, and plan::clip and optimizers such as lars need them: leave them out, or use partition::data\{\}
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<20>{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = ls::partition::pipeline<2>{}, .clip = ls::sync::clip_by_global_norm{.norm = 1}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
