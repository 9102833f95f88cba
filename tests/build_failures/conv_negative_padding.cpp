// SPDX-License-Identifier: BSD-3-Clause
// A number below 0, which becomes a large one.
// build error: lockstep: filters, kernel, stride, dilation and groups of a convolution are at least 1, padding at least 0, all of them below 2.30
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{
        ls::input<28, 28, 1>, conv<8, 5>{}, max_pool<2>{}, conv<16, 3, conv_options{.padding = -1}>{}, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
