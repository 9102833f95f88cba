// SPDX-License-Identifier: BSD-3-Clause
// Gossip mixes weights as they are, which a compressor of gradients does not take.
// build error: lockstep: workers of this strategy exchange weights as they are, which no compressor takes: use compress::none
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/top_k.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/gossip.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .compressor = ls::compress::top_k{.ratio = 0.1},
                                        .sync = ls::sync::gossip{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
