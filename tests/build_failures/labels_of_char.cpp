// SPDX-License-Identifier: BSD-3-Clause
// Class numbers of a type that std::cmp_less does not compare.
// build error: lockstep: class labels are whole numbers: pass std::vector<std::int32_t>, say, as y
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> images(100 * 784);
    const std::vector<char> labels(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::classes<10>>(images, labels);
    return set.size() == 100 ? 0 : 1;
}
