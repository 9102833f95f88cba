// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// AlexNet: Krizhevsky, Sutskever, Hinton 2012, in a single column (every filter on all channels) and in the two columns of the paper.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/conv_with.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

/// 227 x 227 images of 3 colours to 1000 classes: 62,378,344 parameters.
inline constexpr model::sequential alexnet{
    input<227, 227, 3>,
    layers::conv<96, 11, 4>{},
    layers::relu{},
    layers::local_response_norm<5>{},
    layers::max_pool<3, 2>{},
    layers::conv<256, 5, 1, 2>{},
    layers::relu{},
    layers::local_response_norm<5>{},
    layers::max_pool<3, 2>{},
    layers::conv<384, 3, 1, 1>{},
    layers::relu{},
    layers::conv<384, 3, 1, 1>{},
    layers::relu{},
    layers::conv<256, 3, 1, 1>{},
    layers::relu{},
    layers::max_pool<3, 2>{},
    layers::flatten{},
    layers::dense<4096>{},
    layers::relu{},
    layers::dropout{.rate = 0.5},
    layers::dense<4096>{},
    layers::relu{},
    layers::dropout{.rate = 0.5},
    layers::dense<1000>{},
};

/// The second, fourth and fifth convolution in two groups, once one for each of two processors: 60,965,224 parameters.
inline constexpr model::sequential alexnet_two_columns{
    input<227, 227, 3>,
    layers::conv<96, 11, 4>{},
    layers::relu{},
    layers::local_response_norm<5>{},
    layers::max_pool<3, 2>{},
    layers::conv_with<layers::conv_options{.filters = 256, .kernel = 5, .padding = 2, .groups = 2}>{},
    layers::relu{},
    layers::local_response_norm<5>{},
    layers::max_pool<3, 2>{},
    layers::conv<384, 3, 1, 1>{},
    layers::relu{},
    layers::conv_with<layers::conv_options{.filters = 384, .kernel = 3, .padding = 1, .groups = 2}>{},
    layers::relu{},
    layers::conv_with<layers::conv_options{.filters = 256, .kernel = 3, .padding = 1, .groups = 2}>{},
    layers::relu{},
    layers::max_pool<3, 2>{},
    layers::flatten{},
    layers::dense<4096>{},
    layers::relu{},
    layers::dropout{.rate = 0.5},
    layers::dense<4096>{},
    layers::relu{},
    layers::dropout{.rate = 0.5},
    layers::dense<1000>{},
};

}  // namespace lockstep::models
