// SPDX-License-Identifier: BSD-3-Clause
// A metric that makes no value of its sums.
// build error: lockstep: a metric has label<Output>, name and a noexcept .y, target. that returns a sum, or sum_count<Output>, a noexcept add.pass. and result.sums, rows., or max_count<Output> as well, or alone, and result.sums, maxima, rows.; its labels are those of the loss
#include <boost/mpi/environment.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct unfinished {
    static constexpr std::string_view name = "unfinished";
    template <ls::tensor::Shape Output>
    using label = Output;
    template <ls::tensor::Shape Output>
    static constexpr std::size_t sum_count = 2;

    void add(const auto&) const noexcept {}
    void result(std::span<const double>, std::size_t) const {}
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::mean_squared_error{}}};
    const std::vector<float> x(8 * 64), y(2 * 64);
    const auto set = ls::data::in_memory<ls::tensor::shape<8>, ls::tensor::shape<2>>(x, y);
    return trainer.evaluate(set, ls::metrics::list{unfinished{}}).samples == 64 ? 0 : 1;
}
