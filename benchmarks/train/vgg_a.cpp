// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/vgg_a.hpp"

#include "train/step.hpp"

bool benchmark::vgg_a(const options& given) { return measure_steps<true>(given, "vgg-a", lockstep::models::vgg_a, 32); }
