// SPDX-License-Identifier: BSD-3-Clause
// A part of a data set of a user whose read() for training is not const: it would never be called.
// build error: lockstep: read\(rows, x, y, reading\) of a data set is const and takes a const data::reading&
#include "lockstep/data/digits.hpp"
#include "lockstep/data/split.hpp"

namespace ls = lockstep;

struct shifted_digits : ls::data::digits {
    using digits::read;
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<float, sample> x, std::span<std::int32_t> y,
              const ls::data::reading&) {
        digits::read(rows, x, y);
    }
};

int main() {
    const auto parts = ls::data::split(shifted_digits{ls::data::digits{.count = 1000}});
    return static_cast<int>(parts.training.size());
}
