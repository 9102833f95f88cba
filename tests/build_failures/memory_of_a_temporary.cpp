// SPDX-License-Identifier: BSD-3-Clause
// Views of labels that are gone before they are read.
// build error: lockstep: a data set in memory views its containers: give the temporary a name that lives as long
#include <cstdint>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

int main() {
    const std::vector<float> images(100 * 784);
    const ls::data::memory<ls::tensor::shape<784>, ls::tensor::classes<10>> set{images, std::vector<std::int32_t>(100)};
    return set.size() == 100 ? 0 : 1;
}
