// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/resnet.hpp"

#include "train/serial.hpp"
#include "train/step.hpp"

bool benchmark::resnet20(const options& given) {
    return measure_steps(given, "resnet-20", lockstep::models::resnet<20>, 128) ||
           compare_with_serial(given, "resnet-20", lockstep::models::resnet<20>, 128);
}
