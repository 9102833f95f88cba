// SPDX-License-Identifier: BSD-3-Clause
// Something else is handed to fit, not a data set.
// build error: lockstep: a data set has the types sample and label, size\(\), and read\(rows, x, y\)
#include <boost/mpi/environment.hpp>
#include <cstddef>

#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct table {
    [[nodiscard]] std::size_t size() const { return 7; }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(table{}, ls::epochs{1});
}
