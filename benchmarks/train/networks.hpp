// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The networks that are measured; each in a file of its own, because each is a trainer of its own to the compiler.

#include "train/options.hpp"

namespace benchmark {

void lenet5(const options& given);
void mlp(const options& given);
void cd_dnn(const options& given);
void resnet20(const options& given);
void resnet44(const options& given);
void overfeat_fast(const options& given);
void vgg_a(const options& given);

inline constexpr auto networks = {lenet5, mlp, cd_dnn, resnet20, resnet44, overfeat_fast, vgg_a};

}  // namespace benchmark
