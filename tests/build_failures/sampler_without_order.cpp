// SPDX-License-Identifier: BSD-3-Clause
// A user's sampler that returns one number instead of filling the list.
// build error: lockstep: a sampler has order\(n, epoch, seed, out\), which fills out with sample numbers
#include <boost/mpi/environment.hpp>
#include <cstdint>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct backwards {
    std::uint64_t operator()(std::uint64_t n, std::uint64_t at) const { return n - 1 - at; }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .sampler = backwards{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
