// SPDX-License-Identifier: BSD-3-Clause
// A join of two sizes that says that the gradient of its output is that of both.
// build error: lockstep: a layer with is_view or passes_gradient reads a value of another size than its output
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

template <class A, class B>
struct head_layer {
    using input = A;
    using output = A;
    static constexpr std::string_view name = "head";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = A::size;
    static constexpr ls::layer_api::traits traits{.inputs = 2, .passes_gradient = true};
    void forward(const auto& pass) const noexcept {
        for (std::size_t row = 0; row < pass.y.rows; ++row)
            for (std::size_t i = 0; i < A::size; ++i)
                pass.y.data[row * A::size + i] = pass.x[0][row * A::size + i] + pass.x[1][row * B::size + i];
    }
    void backward(const auto&) const noexcept {}
};
struct head {
    template <class A, class B>
    constexpr auto on(A, B) const {
        return head_layer<A, B>{};
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, ls::join{head{}, dense<10>{}, dense<16>{}}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
