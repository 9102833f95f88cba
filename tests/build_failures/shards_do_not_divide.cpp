// SPDX-License-Identifier: BSD-3-Clause
// Ten outputs cannot be cut into four equal shards.
// build error: lockstep: the outputs of a layer are not divisible by the shards of the model partition; use a divisor, or more outputs
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<64>{}, relu{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = ls::partition::model<4>{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
