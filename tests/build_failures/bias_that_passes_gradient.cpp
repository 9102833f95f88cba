// SPDX-License-Identifier: BSD-3-Clause
// A layer with a parameter whose backward is never run.
// build error: lockstep: a layer with is_view, passes_gradient or as_epilogue has parameters
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

template <class S>
struct offset_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "offset";
    static constexpr std::array parameters{ls::tensor::parameter{.name = "b", .columns = S::size}};
    static constexpr double flops = S::size;
    static constexpr ls::layer_api::traits traits{.passes_gradient = true};
    void forward(const auto& pass) const noexcept {
        for (std::size_t i = 0; i < pass.y.rows * S::size; ++i) pass.y.data[i] = pass.x.data[i] + pass.w[0][i % S::size];
    }
    void backward(const auto&) const noexcept {}
};
struct offset {
    template <class S>
    constexpr auto on(S) const {
        return offset_layer<S>{};
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}, offset{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
