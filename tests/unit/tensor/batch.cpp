// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/batch.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace tensor = lockstep::tensor;

TEST_CASE("tensor/batch: samples lie one after the other", "[tensor]") {
    std::vector<float> numbers(5 * 6);
    const tensor::batch<float, tensor::shape<3, 2>> all{numbers.data(), 5};
    CHECK(all.size() == 30);
    CHECK(all.all().data() == numbers.data());
    CHECK(all.all().size() == 30);
    static_assert(decltype(all.sample(0))::extent == 6);
    for (std::size_t row = 0; row < 5; ++row) CHECK(all.sample(row).data() == numbers.data() + 6 * row);

    const auto some = all.part(2, 3);
    CHECK(some.rows == 3);
    CHECK(some.data == numbers.data() + 12);
    some.sample(1)[4] = 8;
    CHECK(numbers[6 * 3 + 4] == 8);
}

TEST_CASE("tensor/batch: read-only views, and empty ones", "[tensor]") {
    std::vector<double> numbers(4);
    const tensor::batch<double, tensor::shape<2>> all{numbers.data(), 2};
    const tensor::batch<const double, tensor::shape<2>> fixed = all;
    CHECK(fixed.data == numbers.data());
    CHECK(fixed.rows == 2);
    static_assert(std::is_same_v<decltype(fixed)::value_type, double>);
    static_assert(
        !std::is_convertible_v<tensor::batch<const double, tensor::shape<2>>, tensor::batch<double, tensor::shape<2>>>);
    CHECK(!fixed.empty());
    CHECK(all.part(1, 0).empty());
    CHECK(tensor::batch<float, tensor::shape<2>>{}.empty());
    CHECK(tensor::batch<float, tensor::shape<2>>{nullptr, 3}.empty());
}
