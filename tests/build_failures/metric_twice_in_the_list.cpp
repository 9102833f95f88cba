// SPDX-License-Identifier: BSD-3-Clause
// A value of one of two metrics of a type.
// build error: lockstep: get<..>.. finds a metric by its type, and evaluate.. was given several of that type: evaluate them one after the other
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/metrics/r_squared.hpp"
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
    const auto found = trainer.evaluate(set, ls::metrics::list{ls::metrics::r_squared{}, ls::metrics::r_squared{}});
    return found.get<ls::metrics::r_squared>() > 0 ? 0 : 1;
}
