// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/lenet5.hpp"

#include "train/serial.hpp"
#include "train/step.hpp"

bool benchmark::lenet5(const options& given) {
    return measure_steps(given, "lenet-5", lockstep::models::lenet5, 128) ||
           compare_with_serial(given, "lenet-5", lockstep::models::lenet5, 128);
}
