// SPDX-License-Identifier: BSD-3-Clause
// The member of an observer is misspelt, so it would never be called.
// build error: lockstep: an observer has on_begin.., on_step\(event\), on_epoch\(event\), on_stop\(report\) or on_end\(report\)
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct losses {
    std::vector<double> seen;
    void on_steps(const ls::report::step_event& event) { seen.push_back(event.loss); }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    losses all;
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1}, all);
}
