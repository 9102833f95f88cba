// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// LeNet-5 in the form of most tutorials: relu and max pooling (after LeCun et al. 1998).

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

/// 28 x 28 gray images to 10 classes: 61,706 parameters. The maximum is taken before relu, which gives the same
/// outputs.
inline constexpr model::sequential lenet5{
    input<28, 28, 1>,     layers::conv_max_pool<6, 5, layers::conv_max_pool_options{.padding = 2}>{},
    layers::relu{},       layers::conv_max_pool<16, 5>{},
    layers::relu{},       layers::flatten{},
    layers::dense<120>{}, layers::relu{},
    layers::dense<84>{},  layers::relu{},
    layers::dense<10>{},
};

/// The same with convolutions, relu and max pooling as layers of their own: slower, for convolutions by another
/// algorithm.
inline constexpr model::sequential lenet5_layer_by_layer{
    input<28, 28, 1>,      layers::conv<6, 5, layers::conv_options{.padding = 2}>{},
    layers::relu{},        layers::max_pool<2>{},
    layers::conv<16, 5>{}, layers::relu{},
    layers::max_pool<2>{}, layers::flatten{},
    layers::dense<120>{},  layers::relu{},
    layers::dense<84>{},   layers::relu{},
    layers::dense<10>{},
};

}  // namespace lockstep::models
