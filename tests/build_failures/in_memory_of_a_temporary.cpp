// SPDX-License-Identifier: BSD-3-Clause
// A data set over numbers that are gone before it is read.
// build error: lockstep: a data set in memory views its containers: give the temporary a name that lives as long
#include <cstdint>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/tensor/label.hpp"

namespace ls = lockstep;

std::vector<float> load() { return std::vector<float>(100 * 784); }

int main() {
    const std::vector<std::int32_t> labels(100);
    const auto set = ls::data::in_memory<ls::tensor::shape<784>, ls::tensor::classes<10>>(load(), labels);
    return set.size() == 100 ? 0 : 1;
}
