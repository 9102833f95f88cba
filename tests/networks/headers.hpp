// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a network is compiled with.

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "double_kernels.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/depthwise_conv.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/lockstep.hpp"
#include "networks/check.hpp"
