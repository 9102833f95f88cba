// SPDX-License-Identifier: BSD-3-Clause
// A data set of a user whose read() for training is not const, inside of normalised: it would never be called.
// build error: lockstep: read\(rows, x, y, reading\) of a data set is const and takes a const data::reading&
#include "lockstep/data/digits.hpp"
#include "lockstep/data/normalised.hpp"

namespace ls = lockstep;

struct shifted_digits : ls::data::digits {
    using digits::read;
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<float, sample> x, std::span<std::int32_t> y,
              const ls::data::reading&) {
        digits::read(rows, x, y);
    }
};

int main() {
    const shifted_digits digits{ls::data::digits{.count = 1000}};
    const ls::data::normalised set{digits, {.mean = {0.1F}, .deviation = {0.3F}}};
    return static_cast<int>(set.size());
}
