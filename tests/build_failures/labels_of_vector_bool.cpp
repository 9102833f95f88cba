// SPDX-License-Identifier: BSD-3-Clause
// A std::vector<bool> has no pointer to its elements.
// build error: lockstep: a container has data.., a pointer to its numbers, and size..; copy a vector<bool> or an xtensor expression first
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> images(100 * 784);
    const std::vector<bool> labels(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::classes<10>>(images, labels);
    return set.size() == 100 ? 0 : 1;
}
