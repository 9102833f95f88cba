// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Takes an image as one row of features. Models LayerSpec; costs nothing, because the memory order stays.

#include <array>
#include <string_view>

#include "lockstep/layers/traits.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

template <tensor::Shape Input>
struct flatten_layer {
    using input = Input;
    using output = tensor::shape<Input::size>;
    static constexpr std::string_view name = "flatten";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    static constexpr layer_api::traits traits{.is_view = true};
};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// flatten{}: rows x columns x channels numbers in a row.
struct flatten {
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::flatten_layer<Input>{};
    }
};

}  // namespace lockstep::layers
