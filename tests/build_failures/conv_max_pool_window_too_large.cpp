// SPDX-License-Identifier: BSD-3-Clause
// A window of 4 x 4 over the 2 x 2 outputs of a convolution.
// build error: lockstep: the window of conv_max_pool is larger than what its convolution puts out; use a smaller one
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net =
        ls::sequential{ls::input<28, 28, 1>, conv_max_pool<8, 27, conv_max_pool_options{.window = 4}>{}, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
