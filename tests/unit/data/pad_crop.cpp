// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/pad_crop.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "files.hpp"
#include "pictures.hpp"

namespace lockstep::data {
namespace {

static_assert(Augmentation<pad_crop> && Augmentation<pad_crop, double>);

/// What stands at (row, column) of the padded picture.
template <class T>
T padded(const test::numbered<T>& of, border how, std::ptrdiff_t row, std::ptrdiff_t column, std::size_t channel) {
    const auto rows = static_cast<std::ptrdiff_t>(of.rows), columns = static_cast<std::ptrdiff_t>(of.columns);
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    if (!inside && how == border::zero) return 0;
    const auto mirrored = [](std::ptrdiff_t i, std::ptrdiff_t n) { return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i; };
    return of.at(static_cast<std::size_t>(mirrored(row, rows)), static_cast<std::size_t>(mirrored(column, columns)),
                 channel);
}

TEMPLATE_TEST_CASE("data/pad_crop: every shift of every picture is the window of the padded one", "[data]", float,
                   double) {
    for (const auto [rows, columns, channels] :
         {std::array<std::size_t, 3>{9, 9, 3}, {7, 11, 1}, {11, 7, 4}, {32, 32, 3}})
        for (const border how : {border::zero, border::reflect}) {
            const test::numbered<TestType> before{rows, columns, channels};
            const auto most =
                static_cast<std::ptrdiff_t>((std::min(rows, columns) - 1) / (how == border::zero ? 1 : 2));
            std::size_t wrong = 0;
            for (std::ptrdiff_t down = -most; down <= most; ++down)
                for (std::ptrdiff_t right = -most; right <= most; ++right) {
                    auto after = before;
                    pad_crop{.padding = 3, .border = how}.shift(after.view(), down, right);
                    for (std::size_t r = 0; r < rows; ++r)
                        for (std::size_t c = 0; c < columns; ++c)
                            for (std::size_t k = 0; k < channels; ++k)
                                wrong += after.at(r, c, k) != padded(before, how, static_cast<std::ptrdiff_t>(r) + down,
                                                                     static_cast<std::ptrdiff_t>(c) + right, k);
                }
            INFO(rows << "x" << columns << "x" << channels << (how == border::zero ? " zero" : " reflect"));
            CHECK(wrong == 0);
        }
}

TEST_CASE("data/pad_crop: all 81 places are drawn equally often", "[data]") {
    std::vector<std::size_t> found(81);
    for (std::uint64_t sample = 0; sample < 8100; ++sample) {
        test::numbered<float> one{9, 9, 1};
        pad_crop{}.apply(one.view(), test::draws_of(sample));
        // The middle is moved by at most 4, so one number tells where the window lies.
        ++found[static_cast<std::size_t>(one.at(4, 4, 0)) - 1];
    }
    CHECK(*std::min_element(found.begin(), found.end()) > 0);
    CHECK(test::chi_square(found) < 124.84);  // 80 degrees of freedom: exceeded once in a thousand seeds
}

TEST_CASE("data/pad_crop: padding 0 changes nothing", "[data]") {
    for (const border how : {border::zero, border::reflect}) {
        test::numbered<float> one{5, 4, 3};
        const auto before = one.numbers;
        pad_crop{.padding = 0, .border = how}.apply(one.view(), test::draws_of(3));
        CHECK(one.numbers == before);
    }
}

TEST_CASE("data/pad_crop: a picture that would leave its frame is an error", "[data]") {
    pad_crop{.padding = 31}.check(32, 33);
    pad_crop{.padding = 15, .border = border::reflect}.check(32, 33);
    CHECK(test::error_of([] { pad_crop{.padding = 32}.check(32, 33); }) ==
          "lockstep: pad_crop{.padding = 32} shifts pictures of 32x33 too far; use a padding of at most 31");
    CHECK(test::error_of([] { pad_crop{.padding = 16, .border = border::reflect}.check(32, 33); }) ==
          "lockstep: pad_crop{.padding = 16} shifts pictures of 32x33 too far; use a padding of at most 15");
    CHECK(pad_crop{}.settings() == "padding=4 border=zero");
    CHECK(pad_crop{.border = border::reflect}.settings() == "padding=4 border=reflect");
}

}  // namespace
}  // namespace lockstep::data
