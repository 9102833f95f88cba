// SPDX-License-Identifier: BSD-3-Clause
// A data set whose class numbers are not std::int32_t.
// build error: lockstep: a data set has .* read\(rows, x, y\), with x a batch<T, sample> of the plan's precision T and y a std::span<std::int32_t> for classes, a std::span<T> for a shape
#include <boost/mpi/environment.hpp>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct corners {
    using sample = ls::tensor::shape<8>;
    using label = ls::tensor::classes<2>;
    std::size_t size() const { return 64; }
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<float, sample> x, std::span<std::size_t> y) const {
        for (std::size_t i = 0; i < rows.size(); ++i) x.sample(i)[0] = 1, y[i] = 0;
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<8>, dense<2>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    return trainer.evaluate(corners{}).samples == 64 ? 0 : 1;
}
