// SPDX-License-Identifier: BSD-3-Clause
// Rows that lie anywhere in memory.
// build error: lockstep: samples in memory are numbers, one after the other: copy a vector of vectors into one vector
#include <cstdint>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<std::vector<float>> images(100 * 784);
    const std::vector<std::int32_t> labels(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::classes<10>>(images, labels);
    return set.size() == 100 ? 0 : 1;
}
