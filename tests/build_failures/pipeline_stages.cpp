// SPDX-License-Identifier: BSD-3-Clause
// A partition that asks for a pipeline of two stages.
// build error: lockstep: a partition has one stage: a trainer has no pipeline; cut the layers with model<Shards>\{\} or hybrid\{data\{\}, model<Shards>\{\}\}
#include <boost/mpi/environment.hpp>
#include <cstddef>
#include <string_view>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct pipeline {
    static constexpr std::size_t shards = 1;
    static constexpr std::size_t stages = 2;
    static constexpr bool replicates = true;
    static constexpr std::string_view name = "pipeline";
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = pipeline{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
