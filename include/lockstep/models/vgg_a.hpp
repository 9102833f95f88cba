// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// VGG-A: configuration A of Simonyan, Zisserman 2015, the network of 11 layers with weights.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

/// 224 x 224 images of 3 colours to 1000 classes: 132,863,336 parameters. Without the dropout of the paper: Das et al.
/// 2016 measure speed.
inline constexpr model::sequential vgg_a{
    input<224, 224, 3>,
    layers::conv<64, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::max_pool<2>{},
    layers::conv<128, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::max_pool<2>{},
    layers::conv<256, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::conv<256, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::max_pool<2>{},
    layers::conv<512, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::conv<512, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::max_pool<2>{},
    layers::conv<512, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::conv<512, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},
    layers::max_pool<2>{},
    layers::flatten{},
    layers::dense<4096>{},
    layers::relu{},
    layers::dense<4096>{},
    layers::relu{},
    layers::dense<1000>{},
};

}  // namespace lockstep::models
