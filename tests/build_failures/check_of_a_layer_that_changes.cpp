// SPDX-License-Identifier: BSD-3-Clause
// A user's layer in a branch whose check() is not const: it would never be called.
// build error: lockstep: the check\(\) of a part of a plan is const
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct checked : dense<20> {
    int checks = 0;
    void check() { ++checks; }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<20>{}, ls::residual{checked{}},
                                        dense<10>{}};
    ls::trainer trainer{world,
                        ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
