// SPDX-License-Identifier: BSD-3-Clause
// A user's loss that does not say what labels it takes.
// build error: lockstep: a loss has label<Output>, name, settings\(\) and a noexcept \(y, target, dy, scale\)
#include <boost/mpi/environment.hpp>
#include <cmath>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct absolute_error {
    static constexpr std::string_view name = "absolute_error";

    std::string settings() const { return {}; }
    template <class T, class Output>
    double operator()(ls::tensor::batch<const T, Output> y, std::span<const T> target, ls::tensor::batch<T, Output> dy,
                      T scale) const noexcept {
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            sum += std::abs(static_cast<double>(y.data[i] - target[i]));
            if (dy.data != nullptr) dy.data[i] = y.data[i] < target[i] ? -scale : scale;
        }
        return sum;
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = absolute_error{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
