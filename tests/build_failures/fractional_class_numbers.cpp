// SPDX-License-Identifier: BSD-3-Clause
// Class numbers that are no whole numbers.
// build error: lockstep: class labels are whole numbers
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> images(100 * 784), labels(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::classes<10>>(images, labels);
    return set.size() == 100 ? 0 : 1;
}
