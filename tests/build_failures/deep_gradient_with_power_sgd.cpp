// SPDX-License-Identifier: BSD-3-Clause
// deep_gradient looks at messages, which a reduction in rounds does not have.
// build error: lockstep: this optimizer looks at the message of each worker, and a reduction in rounds has none, nor does global_top_k send all of it: take a compressor
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::deep_gradient{},
                                        .compressor = ls::compress::error_feedback{ls::compress::power_sgd{}}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
