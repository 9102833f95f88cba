// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/cutout.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "files.hpp"
#include "pictures.hpp"

namespace lockstep::data {
namespace {

static_assert(Augmentation<cutout> && Augmentation<cutout, double>);

TEMPLATE_TEST_CASE("data/cutout: the square around a pixel, cut off at the edges, and nothing else", "[data]", float,
                   double) {
    for (const std::size_t size : {1U, 2U, 5U, 8U}) {
        const test::numbered<TestType> before{8, 11, 3};
        std::size_t wrong = 0;
        for (std::size_t row = 0; row < 8; ++row)
            for (std::size_t column = 0; column < 11; ++column) {
                auto after = before;
                cutout{.size = size}.clear(after.view(), row, column);
                const auto inside = [&](std::size_t at, std::size_t middle) {
                    return at + size / 2 >= middle && at + size / 2 < middle + size;
                };
                for (std::size_t r = 0; r < 8; ++r)
                    for (std::size_t c = 0; c < 11; ++c)
                        for (std::size_t k = 0; k < 3; ++k)
                            wrong +=
                                after.at(r, c, k) != (inside(r, row) && inside(c, column) ? 0 : before.at(r, c, k));
            }
        INFO("size " << size);
        CHECK(wrong == 0);
    }
}

TEST_CASE("data/cutout: every pixel is the middle equally often", "[data]") {
    std::vector<std::size_t> found(63);
    for (std::uint64_t sample = 0; sample < 6300; ++sample) {
        test::numbered<float> one{7, 9, 1};
        cutout{.size = 1}.apply(one.view(), test::draws_of(sample));
        ++found[static_cast<std::size_t>(std::find(one.numbers.begin(), one.numbers.end(), 0.0F) -
                                         one.numbers.begin())];
    }
    CHECK(test::chi_square(found) < 102.17);  // 62 degrees of freedom: exceeded once in a thousand seeds
}

TEST_CASE("data/cutout: a square of no size or beyond the picture is an error", "[data]") {
    cutout{}.check(8, 9);
    CHECK(test::error_of([] { cutout{}.check(9, 7); }) ==
          "lockstep: cutout{.size = 8} on pictures of 9x7; choose a size from 1 to 7");
    CHECK(test::error_of([] { cutout{.size = 0}.check(9, 7); }) ==
          "lockstep: cutout{.size = 0} on pictures of 9x7; choose a size from 1 to 7");
    CHECK(cutout{.size = 16}.settings() == "size=16");
}

}  // namespace
}  // namespace lockstep::data
