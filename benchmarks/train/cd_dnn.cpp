// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/cd_dnn.hpp"

#include "train/step.hpp"

bool benchmark::cd_dnn(const options& given) {
    return measure_steps<true>(given, "cd-dnn", lockstep::models::cd_dnn, 1024);
}
