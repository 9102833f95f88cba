// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Networks that the tests of model/ and train/ look at.

#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/network.hpp"

namespace model_test {

namespace ls = lockstep;
using namespace ls::layers;
using namespace ls::layer_api;

/// The LeNet that many tutorials train on MNIST: 582,026 parameters.
inline constexpr auto lenet = ls::sequential{
    ls::input<28, 28, 1>, conv<32, 5>{}, relu{},       max_pool<2>{}, conv<64, 5>{}, relu{},
    max_pool<2>{},        flatten{},     dense<512>{}, relu{},        dense<10>{},
};
using lenet_type = std::remove_const_t<decltype(lenet)>;

/// A user's layer that sees all features of a sample: it cannot work on a part of them.
struct whole_sample {
    template <class S>
    struct layer {
        using input = S;
        using output = S;
        static constexpr std::string_view name = "whole_sample";
        static constexpr std::array<ls::tensor::parameter, 0> parameters{};
        static constexpr double flops = static_cast<double>(S::size);
        void forward(const auto&) const noexcept {}
        void backward(const auto&) const noexcept {}
    };
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer<Input>{};
    }
};

/// Sharded and replicated layers by turns.
inline constexpr auto mixed = ls::sequential{
    ls::input<6, 6, 2>, conv<4, 3>{},          ls::layers::tanh{}, flatten{},  dense<24>{}, dropout{.rate = 0.125},
    whole_sample{},     dropout{.rate = 0.25}, dense<12>{},        dense<8>{}, relu{},
};
using mixed_type = std::remove_const_t<decltype(mixed)>;

}  // namespace model_test
