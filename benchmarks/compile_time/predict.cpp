// SPDX-License-Identifier: BSD-3-Clause
// What compiling costs a program that only predicts, with the network that examples/smallest.cpp trains.
#include <cstddef>
#include <iostream>
#include <span>
#include <vector>

#include "lockstep/infer/predictor.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int, char** argv) {
    constexpr auto net = ls::sequential{
        ls::input<28, 28, 1>, conv<8, 5>{}, relu{},      max_pool<2>{}, conv<16, 5>{}, relu{},
        max_pool<2>{},        flatten{},    dense<64>{}, relu{},        dense<10>{},
    };
    ls::predictor classify{net, argv[1]};
    const std::vector<float> image(28 * 28);
    for (const float score : classify.predict(std::span<const float>{image})) std::cout << score << "\n";
}
