// SPDX-License-Identifier: BSD-3-Clause
// A layer is a value, relu{}: a mistake of syntax, so the compiler speaks before the library can. A few lines.
// build error: missing template arguments before|expected primary-expression before
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<16>{}, relu, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
