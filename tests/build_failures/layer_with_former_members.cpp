// SPDX-License-Identifier: BSD-3-Clause
// A layer that says what it keeps in a member of its own, as in former versions.
// build error: lockstep: a layer has needs_x, needs_y, in_place, saved_bytes or their like as members
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

template <class S>
struct keeping_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "keeping";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = S::size;
    template <class T>
    static constexpr std::size_t saved_bytes = S::size * sizeof(T);
    void forward(const auto&) const noexcept {}
    void backward(const auto&) const noexcept {}
};
struct keeping {
    template <class S>
    constexpr auto on(S) const {
        return keeping_layer<S>{};
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}, keeping{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
