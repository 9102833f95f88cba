// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the listings inside and before main() take for granted.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtensor/xtensor.hpp>

#include "lockstep/check_gradients.hpp"
#include "lockstep/infer/predictor.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/models/lenet5.hpp"
#include "lockstep/report/html_report.hpp"
#include "lockstep/report/tensorboard.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/sync/asynchronous.hpp"
#include "lockstep/sync/choco_sgd.hpp"
#include "lockstep/sync/gossip.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/find_learning_rate.hpp"

namespace mpi = boost::mpi;
namespace ls = lockstep;
namespace part = ls::partition;
using namespace ls::layers;
