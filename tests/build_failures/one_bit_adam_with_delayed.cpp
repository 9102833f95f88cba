// SPDX-License-Identifier: BSD-3-Clause
// A delayed step has proposals that know nothing of the update before them.
// build error: lockstep: this optimizer proposes in each step, after the update of the last one, and its sums are no gradients: take
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::one_bit_adam{.warm_up = 10},
                                        .compressor = ls::compress::error_feedback{ls::compress::top_k{}},
                                        .sync = ls::sync::delayed{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
