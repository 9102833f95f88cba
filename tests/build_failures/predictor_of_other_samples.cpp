// SPDX-License-Identifier: BSD-3-Clause
// A data set whose samples are pictures, for a network that takes rows of numbers.
// build error: lockstep: the samples of the data set have another shape or type than the network takes
#include "lockstep/data/digits.hpp"
#include "lockstep/infer/predictor.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;

int main() {
    constexpr auto net = ls::sequential{ls::input<784>, ls::layers::dense<10>{}};
    ls::predictor classify{net, "net.safetensors"};
    (void)classify.predict(ls::data::digits{.count = 100});
}
