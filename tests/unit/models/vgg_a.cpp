// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/vgg_a.hpp"

#include "unit/models/facts.hpp"

using namespace models_test;

TEST_CASE("models/vgg_a: parameters and operations of configuration A", "[models]") {
    using net = network<ls::models::vgg_a>;
    static_assert(net::parameters == 132'863'336);
    constexpr double convolutions =
        9.0 * (224.0 * 224 * 3 * 64 + 112 * 112 * 64 * 128 + 56 * 56 * (128 * 256 + 256 * 256) +
               28 * 28 * (256 * 512 + 512 * 512) + 14 * 14 * 2 * 512 * 512);
    constexpr double dense = 25088.0 * 4096 + 4096 * 4096 + 4096 * 1000;
    static_assert(weight_flops<net>() == 2 * (convolutions + dense));
    // 15.22 GFLOP forward and 45.65 GFLOP to train on an image, without the data gradient of the first layer 45.48.
    static_assert(weight_flops<net>() > 15.215e9 && weight_flops<net>() < 15.225e9);
    CHECK(count<net>("conv") + count<net>("dense") == 11);
}
