// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CD-DNN: the acoustic model of speech recognition in Seide et al. 2014 and Das et al. 2016.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::models {

/// 429-7x2048-9304: eleven frames of 39 features to 9304 senones, sigmoids between, 45,122,648 parameters.
inline constexpr model::sequential cd_dnn{
    input<429>,        layers::dense<2048>{}, layers::sigmoid{}, layers::dense<2048>{},
    layers::sigmoid{}, layers::dense<2048>{}, layers::sigmoid{}, layers::dense<2048>{},
    layers::sigmoid{}, layers::dense<2048>{}, layers::sigmoid{}, layers::dense<2048>{},
    layers::sigmoid{}, layers::dense<2048>{}, layers::sigmoid{}, layers::dense<9304>{},
};

}  // namespace lockstep::models
