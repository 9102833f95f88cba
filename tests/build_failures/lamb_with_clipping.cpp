// SPDX-License-Identifier: BSD-3-Clause
// LAMB has norms of its steps, which would follow from gradients that are not clipped yet.
// build error: lockstep: the optimizer has norms of its own steps, as lamb has, and clipped gradients are known after them: leave .clip out
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{
        world,
        ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .optimizer = ls::optim::lamb{}, .clip = ls::sync::clip_by_global_norm{.norm = 1}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
