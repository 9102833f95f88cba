// SPDX-License-Identifier: BSD-3-Clause
// Arrays in place of a data set.
// build error: lockstep: fit takes a data set and a length: make a set of arrays, const auto set = ls::data::in_memory<Shape, Label>\(x, y\)
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<3>, ls::layers::dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
    const std::vector<float> x(30), y(20);
    trainer.fit(x, y, ls::epochs{1});
}
