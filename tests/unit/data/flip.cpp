// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/flip.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "files.hpp"
#include "pictures.hpp"

namespace lockstep::data {
namespace {

static_assert(Augmentation<flip> && Augmentation<flip, double>);

TEMPLATE_TEST_CASE("data/flip: columns change sides, channels keep their order", "[data]", float, double) {
    for (const auto [rows, columns, channels] :
         {std::array<std::size_t, 3>{1, 1, 1}, {2, 5, 1}, {3, 6, 2}, {4, 7, 3}, {32, 32, 3}, {3, 4, 5}}) {
        const test::numbered<TestType> before{rows, columns, channels};
        auto after = before;
        flip{.probability = 1}.apply(after.view(), test::draws_of(0));
        std::size_t wrong = 0;
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c)
                for (std::size_t k = 0; k < channels; ++k)
                    wrong += after.at(r, c, k) != before.at(r, columns - 1 - c, k);
        INFO(rows << "x" << columns << "x" << channels);
        CHECK(wrong == 0);
    }
}

TEST_CASE("data/flip: as many pictures as the probability says", "[data]") {
    for (const float probability : {0.0F, 0.25F, 0.5F, 1.0F}) {
        std::size_t flipped = 0;
        for (std::uint64_t sample = 0; sample < 10'000; ++sample) {
            test::numbered<float> one{1, 2, 1};
            flip{.probability = probability}.apply(one.view(), test::draws_of(sample));
            flipped += one.at(0, 0, 0) == 2;
        }
        // 3.3 deviations of a binomial: exceeded once in a thousand seeds; 0 and 1 are exact.
        const double p = static_cast<double>(probability), deviation = std::sqrt(10'000 * p * (1 - p));
        CHECK(std::abs(static_cast<double>(flipped) - 10'000 * p) <= 3.3 * deviation);
    }
}

TEST_CASE("data/flip: a probability outside 0 to 1 is an error", "[data]") {
    flip{}.check(32, 32);
    CHECK(test::error_of([] { flip{.probability = 1.5F}.check(32, 32); }) ==
          "lockstep: flip{.probability = 1.5}; choose a probability between 0 and 1");
    CHECK(!test::error_of([] { flip{.probability = std::numeric_limits<float>::quiet_NaN()}.check(32, 32); }).empty());
    CHECK(flip{}.settings() == "probability=0.5");
}

}  // namespace
}  // namespace lockstep::data
