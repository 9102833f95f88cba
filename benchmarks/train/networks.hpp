// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The networks that are measured; each in a file of its own, because each is a trainer of its own to the compiler.
// False: not asked for.

#include "train/options.hpp"

namespace benchmark {

bool lenet5(const options& given);
bool mlp(const options& given);
bool cd_dnn(const options& given);
bool resnet20(const options& given);
bool resnet44(const options& given);
bool overfeat_fast(const options& given);
bool vgg_a(const options& given);

#if defined(BENCHMARK_FEW_NETWORKS)
inline constexpr auto networks = {lenet5, mlp, resnet20};
#else
inline constexpr auto networks = {lenet5, mlp, cd_dnn, resnet20, resnet44, overfeat_fast, vgg_a};
#endif

}  // namespace benchmark
