// SPDX-License-Identifier: BSD-3-Clause
// A user's layer on images that can be cut: parts of an image are not joined.
// build error: lockstep: a layer with an image as its output has shard<Shards>.., and its parts could not be joined
#include <array>
#include <boost/mpi/environment.hpp>

#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

/// A convolution of 1 x 1 whose filters are cut.
template <std::size_t Channels, std::size_t Filters, std::size_t Whole = Filters>
struct mixed_layer {
    using input = ls::tensor::shape<2, 2, Channels>;
    using output = ls::tensor::shape<2, 2, Filters>;
    template <std::size_t Shards>
    constexpr auto shard() const {
        return mixed_layer<Channels, Whole / Shards, Whole>{};
    }
    static constexpr std::string_view name = "mixed";
    static constexpr std::array parameters{ls::tensor::parameter{.name = "weight", .rows = Channels, .columns = Filters}};
    static constexpr double flops = 8.0 * Channels * Filters;
    void forward(const auto&) const noexcept {}
    void backward(const auto&) const noexcept {}
};
struct mixed {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return mixed_layer<Input::extents[2], 4>{};
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<2, 2, 3>, mixed{}, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .partition = ls::partition::model<2>{}}};
    (void)trainer.weights_hash();
}
