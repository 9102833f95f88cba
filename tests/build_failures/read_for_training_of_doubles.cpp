// SPDX-License-Identifier: BSD-3-Clause
// A data set of a user whose read() for training is of double, in a network of float, and in a part of the set.
// build error: lockstep: read\(rows, x, y, reading\) of a data set is const .* x and y of the types that read\(rows, x, y\) takes
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct shifted_digits : ls::data::digits {
    using digits::read;
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<double, sample> x, std::span<std::int32_t> y,
              const ls::data::reading&) const {
        digits::read(rows, x, y);
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    const auto parts = ls::data::split(shifted_digits{ls::data::digits{.count = 1000}});
    trainer.fit(parts.training, ls::epochs{1});
}
