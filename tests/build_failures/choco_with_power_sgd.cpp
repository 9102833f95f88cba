// SPDX-License-Identifier: BSD-3-Clause
// CHOCO-SGD sends messages to neighbours: a low-rank reduction makes sums.
// build error: lockstep: workers of sync::choco_sgd send messages to neighbours, and this compressor is summed on its way or changes the sum: use top_k
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/choco_sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .compressor = ls::compress::power_sgd{.rank = 2},
                                        .sync = ls::sync::choco_sgd{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
