// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/xtensor.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace tensor = lockstep::tensor;

TEST_CASE("tensor/xtensor: an adaptor is a view of the same memory in row-major order", "[tensor]") {
    std::vector<float> numbers(2 * 3 * 4);
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    auto view = tensor::as_xtensor(std::span{numbers}, std::array<std::size_t, 3>{2, 3, 4});
    CHECK(view.dimension() == 3);
    CHECK(view.size() == 24);
    CHECK(&view(0, 0, 0) == numbers.data());
    for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < 3; ++j)
            for (std::size_t k = 0; k < 4; ++k) CHECK(&view(i, j, k) == &numbers[(i * 3 + j) * 4 + k]);
    view(1, 2, 3) = -5;
    CHECK(numbers[23] == -5);
    numbers[0] = 9;
    CHECK(view(0, 0, 0) == 9);
}

TEST_CASE("tensor/xtensor: a batch has the rows before the extents of its shape", "[tensor]") {
    const std::vector<double> numbers(5 * 6);
    const auto view = tensor::as_xtensor_batch<tensor::shape<3, 2>>(std::span{numbers});
    REQUIRE(view.dimension() == 3);
    CHECK(view.shape()[0] == 5);
    CHECK(view.shape()[1] == 3);
    CHECK(view.shape()[2] == 2);
    CHECK(&view(4, 2, 1) == &numbers[29]);
    const auto none = tensor::as_xtensor_batch<tensor::shape<3, 2>>(std::span{numbers}.first(0));
    CHECK(none.shape()[0] == 0);
    CHECK(none.size() == 0);
}

TEST_CASE("tensor/xtensor: with this header every type has views by extents, and containers by shape", "[tensor]") {
    STATIC_REQUIRE(tensor::has_views<float>);
    STATIC_REQUIRE(tensor::has_views<const double>);
    std::vector<double> numbers(12);
    auto view = tensor::views<double>::of(std::span{numbers}, std::array<std::size_t, 2>{3, 4});
    view(2, 1) = 7;
    CHECK(numbers[9] == 7);
    auto batch = tensor::views<const double>::make_batch<tensor::shape<2, 3>>(2);
    REQUIRE(batch.dimension() == 3);
    CHECK(batch.shape()[0] == 2);
    CHECK(batch.size() == 12);
    batch(1, 1, 0) = 8;
    CHECK(batch.data()[9] == 8);
}
