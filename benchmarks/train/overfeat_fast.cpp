// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/overfeat_fast.hpp"

#include "train/step.hpp"

bool benchmark::overfeat_fast(const options& given) {
    return measure_steps(given, "overfeat-fast", lockstep::models::overfeat_fast, 32);
}
