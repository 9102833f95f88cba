// SPDX-License-Identifier: BSD-3-Clause
// An observer that looks at a validation set, before the set.
// build error: lockstep: an observer that needs a validation, such as early_stopping, has none: name validate.set. before it in fit..
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/report/early_stopping.hpp"
#include "lockstep/report/html_report.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
    const std::vector<float> x(8 * 64), y(2 * 64);
    const auto set = ls::data::in_memory<ls::tensor::shape<8>, ls::tensor::shape<2>>(x, y);
    trainer.fit(set, ls::epochs{3}, ls::html_report{.path = "run.html"}, ls::early_stopping{}, ls::validate{set});
}
