// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/cd_dnn.hpp"

#include "train/step.hpp"

void benchmark::cd_dnn(const options& given) { measure_steps(given, "cd-dnn", lockstep::models::cd_dnn, 1024); }
