// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/resnet.hpp"

#include "train/step.hpp"

bool benchmark::resnet44(const options& given) {
    return measure_steps(given, "resnet-44", lockstep::models::resnet<44>, 128);
}
