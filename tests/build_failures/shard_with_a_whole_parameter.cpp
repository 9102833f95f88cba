// SPDX-License-Identifier: BSD-3-Clause
// A user's layer that can be cut, with a parameter that is not.
// build error: lockstep: shard<Shards>.. of a layer returns a layer whose parameters have the rows of the whole and 1/Shards
#include <array>
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

template <std::size_t In, std::size_t Out, std::size_t Whole = Out>
struct scaled_layer {
    using input = ls::tensor::shape<In>;
    using output = ls::tensor::shape<Out>;
    template <std::size_t Shards>
    constexpr auto shard() const {
        return scaled_layer<In, Whole / Shards, Whole>{};
    }
    static constexpr std::string_view name = "scaled";
    static constexpr std::array parameters{ls::tensor::parameter{.name = "weight", .rows = In, .columns = Out},
                                           ls::tensor::parameter{.name = "gain", .columns = 1}};
    static constexpr double flops = 2.0 * In * Out;
    void forward(const auto&) const noexcept {}
    void backward(const auto&) const noexcept {}
};
struct scaled {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return scaled_layer<Input::size, 10>{};
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, scaled{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = ls::partition::model<2>{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
