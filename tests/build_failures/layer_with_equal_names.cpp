// SPDX-License-Identifier: BSD-3-Clause
// A user's layer with two parameters of one name, which a file could not tell apart.
// build error: lockstep: each parameter and statistic of a layer has a name, and no two of them the same
#include <array>
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

template <class Input>
struct half_layer {
    using input = Input;
    using output = Input;
    static constexpr std::string_view name = "half";
    static constexpr std::array parameters{ls::tensor::parameter{.name = "scale", .columns = Input::size},
                                           ls::tensor::parameter{.name = "scale", .columns = Input::size}};
    static constexpr double flops = static_cast<double>(Input::size);

    void forward(const auto& pass) const noexcept {
        for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y.data[i] = pass.x.data[i] / 2;
    }
    void backward(const auto& pass) const noexcept {
        for (std::size_t i = 0; i < pass.dy.size(); ++i) pass.dx.data[i] = pass.dy.data[i] / 2;
    }
};
struct half {
    template <class Input>
    constexpr auto on(Input) const {
        return half_layer<Input>{};
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<64>{}, half{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
