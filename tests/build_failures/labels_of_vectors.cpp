// SPDX-License-Identifier: BSD-3-Clause
// Wanted outputs that lie anywhere in memory.
// build error: lockstep: labels in memory are numbers, one after the other: copy a vector of vectors into one vector
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> images(100 * 784);
    const std::vector<std::vector<float>> labels(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::shape<2>>(images, labels);
    return set.size() == 100 ? 0 : 1;
}
