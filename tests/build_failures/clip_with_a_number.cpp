// SPDX-License-Identifier: BSD-3-Clause
// A norm alone as plan::clip.
// build error: lockstep: plan::clip is left out, or has name, settings\(\) and noexcept is_active\(\) and factor\(norm\), as
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .clip = 1.0}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
