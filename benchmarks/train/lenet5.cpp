// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/lenet5.hpp"

#include "train/step.hpp"

void benchmark::lenet5(const options& given) { measure_steps(given, "lenet-5", lockstep::models::lenet5, 128); }
