// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A network whose weights are under way for long: megabytes, over messages, in many pieces.

#include <chrono>
#include <cstddef>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace support {

inline constexpr std::size_t large_width = 512, large_samples = 64;

inline auto large_recipe() {
    namespace ls = lockstep;
    using ls::layers::dense;
    return ls::plan{.model = ls::sequential{ls::input<large_width>, dense<1024>{}, ls::layers::tanh{}, dense<1>{}},
                    .loss = ls::loss::mean_squared_error{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = 1e-4},
                    .batch = 8,
                    .transport = ls::transport::messages,
                    .timeout = std::chrono::seconds{30}};
}
inline const std::vector<float> large_x(large_samples*large_width, 0.25F), large_y(large_samples, 1.0F);
inline auto large_set() {
    return lockstep::data::in_memory<lockstep::tensor::shape<large_width>, lockstep::tensor::shape<1>>(large_x,
                                                                                                       large_y);
}

}  // namespace support
