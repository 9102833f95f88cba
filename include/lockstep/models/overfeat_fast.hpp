// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// OverFeat-FAST: the fast model of Sermanet et al. 2014.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

/// 231 x 231 images of 3 colours to 1000 classes: 145,920,872 parameters. Without the dropout of the paper: Das et al.
/// 2016 measure speed.
inline constexpr model::sequential overfeat_fast{
    input<231, 231, 3>,     layers::conv<96, 11, layers::conv_options{.stride = 4}>{},
    layers::relu{},         layers::max_pool<2>{},
    layers::conv<256, 5>{}, layers::relu{},
    layers::max_pool<2>{},  layers::conv<512, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},         layers::conv<1024, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},         layers::conv<1024, 3, layers::conv_options{.padding = 1}>{},
    layers::relu{},         layers::max_pool<2>{},
    layers::flatten{},      layers::dense<3072>{},
    layers::relu{},         layers::dense<4096>{},
    layers::relu{},         layers::dense<1000>{},
};

}  // namespace lockstep::models
