// SPDX-License-Identifier: BSD-3-Clause
// Frozen layers whose bits the mean of workers would change.
// build error: lockstep: workers with weights of their own average all of them, and freeze keeps some bit for bit: .*
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/freeze.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .optimizer = ls::optim::freeze{.before = 1, .inner = ls::optim::momentum{}},
        .sync = ls::sync::local_sgd{.period = 4},
    }};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
