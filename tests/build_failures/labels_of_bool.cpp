// SPDX-License-Identifier: BSD-3-Clause
// Truth values as class numbers.
// build error: lockstep: class labels are whole numbers: pass std::vector<std::int32_t>, say, as y
#include <array>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> images(100 * 784);
    const std::array<bool, 100> labels{};
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::classes<10>>(images, labels);
    return set.size() == 100 ? 0 : 1;
}
