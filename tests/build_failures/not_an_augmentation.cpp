// SPDX-License-Identifier: BSD-3-Clause
// A layer stands among the augmentations of a data set.
// build error: lockstep: an augmentation has name, settings\(\) and a noexcept apply\(picture, draws\)
#include <vector>

#include "lockstep/data/augmented.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dropout.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> x(12 * 12);
    const std::vector<int> y(1);
    const auto set = ls::data::in_memory<ls::tensor::shape<12, 12, 1>, ls::tensor::classes<10>>(x, y);
    const ls::data::augmented more{set, ls::data::flip{}, ls::layers::dropout{}};
    return static_cast<int>(more.size());
}
