// SPDX-License-Identifier: BSD-3-Clause
// A user's metric whose name is no static member.
// build error: lockstep: a metric has label<Output>, name and a noexcept .*
#include <boost/mpi/environment.hpp>
#include <string_view>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/metrics/r_squared.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct rmse {
    std::string_view name = "rmse";
    template <class Output>
    using label = Output;
    template <class T, class Output>
    double operator()(ls::tensor::batch<const T, Output>, std::span<const T>) const noexcept {
        return 0;
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
    const std::vector<float> x(8 * 64), y(2 * 64);
    const auto set = ls::data::in_memory<ls::tensor::shape<8>, ls::tensor::shape<2>>(x, y);
    return trainer.evaluate(set, ls::metrics::list{rmse{}}).loss > 0 ? 0 : 1;
}
