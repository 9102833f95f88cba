// SPDX-License-Identifier: BSD-3-Clause
// The number of shards as a value.
// build error: lockstep: the second member of a hybrid partition is model<Shards>\{\} or pipeline<Stages>\{\}; write hybrid\{data\{\}, model<2>\{\}\}
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

namespace part = ls::partition;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world,
                        ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = part::hybrid{part::data{}, 2}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
