// SPDX-License-Identifier: BSD-3-Clause
// A flag where a function is asked.
// build error: lockstep: saves_at_stop\(\) of an observer is const, takes nothing and returns a bool
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct own {
    static constexpr bool saves_at_stop = false;
    void on_stop(const ls::report::totals&) {}
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
    const std::vector<float> x(8 * 64), y(2 * 64);
    const auto set = ls::data::in_memory<ls::tensor::shape<8>, ls::tensor::shape<2>>(x, y);
    trainer.fit(set, ls::epochs{1}, own{});
}
