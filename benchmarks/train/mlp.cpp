// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/mlp.hpp"

#include "train/serial.hpp"
#include "train/step.hpp"

bool benchmark::mlp(const options& given) {
    return measure_steps(given, "mlp", lockstep::models::mlp, 128) ||
           compare_with_serial(given, "mlp", lockstep::models::mlp, 128);
}
