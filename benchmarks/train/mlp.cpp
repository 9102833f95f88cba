// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/mlp.hpp"

#include "train/step.hpp"

void benchmark::mlp(const options& given) { measure_steps(given, "mlp", lockstep::models::mlp, 128); }
