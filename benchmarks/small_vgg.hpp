// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A network that several benchmarks train.

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"

namespace benchmark {

/// The form of VGG for images of 32 x 32: 815,018 parameters, 77 MFLOP forward.
inline constexpr auto small_vgg = [] {
    using namespace lockstep::layers;
    constexpr conv_options same{.padding = 1};
    return lockstep::model::sequential{
        lockstep::input<32, 32, 3>, conv<32, 3, same>{},  relu{}, conv<32, 3, same>{},  relu{}, max_pool<2>{},
        conv<64, 3, same>{},        relu{},               conv<64, 3, same>{},          relu{}, max_pool<2>{},
        conv<128, 3, same>{},       relu{},               conv<128, 3, same>{},         relu{}, max_pool<2>{},
        flatten{},                  dense<256>{},         relu{},                       dense<10>{}};
}();

}  // namespace benchmark
