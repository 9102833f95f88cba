// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/slots.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace tensor = lockstep::tensor;

TEST_CASE("tensor/slots: arrays of equal size, a stride apart; parts and runs of them", "[tensor]") {
    std::vector<int> numbers(3 * 10);
    std::iota(numbers.begin(), numbers.end(), 0);
    const tensor::slots<int> all{numbers.data(), 3, 8, 10};
    CHECK(all.count() == 3);
    CHECK(all.size() == 8);
    for (std::size_t slot = 0; slot < 3; ++slot) {
        CHECK(all[slot].size() == 8);
        CHECK(all[slot].front() == static_cast<int>(10 * slot));
    }

    const auto part = all.part(5, 2);
    CHECK(part.count() == 3);
    CHECK(part.size() == 2);
    CHECK(part[2][1] == 26);
    CHECK(part.part(1, 1)[1][0] == 16);

    const auto inner = all.from(1, 2);
    CHECK(inner.count() == 2);
    CHECK(inner.size() == 8);
    CHECK(inner[1][3] == 23);
    CHECK(inner.part(3, 2)[0][1] == 14);

    CHECK(tensor::slots<float>{}.count() == 0);
}
