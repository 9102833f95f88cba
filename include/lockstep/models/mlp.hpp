// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A multilayer perceptron for 28 x 28 images.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

/// 784-1024-1024-10 with relu: 1,863,690 parameters.
inline constexpr model::sequential mlp{
    input<28, 28, 1>,      layers::flatten{}, layers::dense<1024>{}, layers::relu{},
    layers::dense<1024>{}, layers::relu{},    layers::dense<10>{},
};

}  // namespace lockstep::models
