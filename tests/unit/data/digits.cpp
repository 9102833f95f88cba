// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/digits.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "files.hpp"
#include "lockstep/core/hash.hpp"

namespace lockstep::data {
namespace {

static_assert(Dataset<digits> && Dataset<digits, double>);

struct content {
    std::vector<float> x;
    std::vector<std::int32_t> y;

    std::uint64_t hash() const {
        return core::hash(std::as_bytes(std::span{x}), core::hash(std::as_bytes(std::span{y})));
    }
};

content read(const digits& set, std::span<const std::uint64_t> rows) {
    content out{std::vector<float>(rows.size() * 784), std::vector<std::int32_t>(rows.size())};
    set.read<float>(rows, {out.x.data(), rows.size()}, out.y);
    return out;
}

std::vector<std::uint64_t> range(std::uint64_t count) {
    std::vector<std::uint64_t> out(count);
    std::iota(out.begin(), out.end(), std::uint64_t{0});
    return out;
}

TEST_CASE("data/digits: the images are these, on every machine", "[data]") {
    CHECK(core::hexadecimal(read(digits{}, range(500)).hash()) == "09383c7182e58c3b");
}

TEST_CASE("data/digits: a sample does not depend on the order or the size of reads", "[data]") {
    const auto forwards = range(100);
    auto backwards = forwards;
    std::reverse(backwards.begin(), backwards.end());
    const content a = read(digits{}, forwards);
    const content b = read(digits{}, backwards);
    for (std::uint64_t row = 0; row < 100; ++row) {
        const content alone = read(digits{}, std::span{&row, 1});
        CHECK(alone.y[0] == a.y[row]);
        CHECK(alone.y[0] == b.y[99 - row]);
        CHECK(std::equal(alone.x.begin(), alone.x.end(), a.x.begin() + static_cast<std::ptrdiff_t>(784 * row)));
        CHECK(std::equal(alone.x.begin(), alone.x.end(), b.x.begin() + static_cast<std::ptrdiff_t>(784 * (99 - row))));
    }
}

TEST_CASE("data/digits: seed, range and distortion choose the samples", "[data]") {
    const auto rows = range(20);
    const std::uint64_t here = read(digits{}, rows).hash();
    CHECK(here == read(digits{}, rows).hash());
    CHECK(here != read(digits{.seed = 2}, rows).hash());
    CHECK(here != read(digits{.distortion = 0.5F}, rows).hash());
    CHECK(here != read(digits{.count = 20, .first = 1'000'000}, rows).hash());
    auto shifted = rows;
    for (auto& row : shifted) row += 30;
    CHECK(read(digits{.first = 30}, rows).hash() == read(digits{}, shifted).hash());
}

TEST_CASE("data/digits: no two of many images are equal", "[data]") {
    std::vector<std::uint64_t> seen;
    std::array<float, 784> ink{};
    for (std::uint64_t row = 0; row < 5000; ++row) {
        (void)digits{}.draw(row, ink);
        seen.push_back(core::hash(std::as_bytes(std::span{ink})));
    }
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("data/digits: without distortion there are as many outlines as ways to write", "[data]") {
    std::vector<std::uint64_t> seen;
    std::array<float, 784> ink{};
    for (std::uint64_t row = 0; row < 2000; ++row) {
        (void)digits{.distortion = 0}.draw(row, ink);
        for (float& pixel : ink) pixel = pixel > 0 ? 1.0F : 0.0F;  // grain changes how black a pixel is, not whether
        seen.push_back(core::hash(std::as_bytes(std::span{ink})));
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    std::size_t ways = 0;
    for (std::size_t digit = 0; digit < 10; ++digit) ways += ways_to_write(digit).size();
    CHECK(seen.size() == ways);
}

TEST_CASE("data/digits: ink is finite, within 0 and 1, well inside the paper, and normalised as documented", "[data]") {
    constexpr std::uint64_t count = 20'000;
    std::array<int, 10> classes{};
    std::array<float, 784> ink{};
    double sum = 0, squares = 0, border = 0;
    for (std::uint64_t row = 0; row < count; ++row) {
        ++classes.at(static_cast<std::size_t>(digits{}.draw(row, ink)));
        double total = 0;
        for (std::size_t pixel = 0; pixel < 784; ++pixel) {
            const auto value = static_cast<double>(ink[pixel]);
            if (!(value >= 0 && value <= 1)) FAIL("sample " << row << ", pixel " << pixel << " is " << value);
            const bool edge = pixel < 28 || pixel >= 756 || pixel % 28 == 0 || pixel % 28 == 27;
            border += edge ? value : 0;
            total += value;
            squares += value * value;
        }
        if (total < 10) FAIL("sample " << row << " has only " << total << " pixels of ink");
        sum += total;
    }
    for (const int of_class : classes) {
        CHECK(of_class > 1800);  // five standard deviations are 212
        CHECK(of_class < 2200);
    }
    const double n = 784.0 * count;
    const double mean = sum / n;
    CHECK(mean == Approx(static_cast<double>(digits{}.mean)).epsilon(0.01));
    CHECK(std::sqrt(squares / n - mean * mean) == Approx(static_cast<double>(digits{}.deviation)).epsilon(0.01));
    CHECK(border / sum < 0.002);
}

TEST_CASE("data/digits: mean and deviation are applied", "[data]") {
    std::array<float, 784> ink{};
    std::array<double, 784> x{};
    std::array<std::int32_t, 1> y{};
    const digits set{.mean = 0.25F, .deviation = 0.5F};
    const std::int32_t label = set.draw(7, ink);
    set.read<double>(std::array<std::uint64_t, 1>{7}, {x.data(), 1}, y);
    CHECK(y[0] == label);
    for (std::size_t pixel = 0; pixel < 784; ++pixel)
        CHECK(x[pixel] == static_cast<double>((ink[pixel] - 0.25F) / 0.5F));
}

TEST_CASE("data/digits: up to the largest distortion there is ink, within 0 and 1", "[data]") {
    constexpr std::uint64_t count = 4000;
    const digits set{.distortion = digits::most_distortion};
    std::array<float, 784> ink{};
    std::size_t blank = 0;
    for (std::uint64_t row = 0; row < count; ++row) {
        (void)set.draw(row, ink);
        const auto [least, most] = std::minmax_element(ink.begin(), ink.end());
        if (!(*least >= 0 && *most <= 1)) FAIL("sample " << row << " has ink from " << *least << " to " << *most);
        blank += *most == 0;
    }
    CHECK(blank < count / 500);
}

TEST_CASE("data/digits: numbers that make no sense are refused", "[data]") {
    constexpr float none = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    const auto error = [](const digits& set) { return test::error_of([&] { set.check(); }); };
    const std::string start = "lockstep: generated digits (seed 1, from 0) has the ";
    for (const float one : {0.0F, 1.0F, digits::most_distortion}) CHECK(error({.distortion = one}).empty());
    for (const float one : {-0.5F, 4.5F, 1e6F, infinite, none})
        CHECK(error({.distortion = one}) ==
              start + "distortion " + core::text(one) + "; give it a distortion from 0, which is print, to 4");
    for (const float one : {0.0F, -1.0F, infinite, none})
        CHECK(error({.deviation = one}) ==
              start + "mean 0.1358 and the deviation " + core::text(one) +
                  "; give it a finite mean, and a finite deviation above 0: 0 and 1 change nothing");
    for (const float one : {infinite, -infinite, none})
        CHECK_THAT(error({.mean = one}), Catch::StartsWith(start + "mean " + core::text(one) + " and the deviation"));
}

TEST_CASE("data/digits: a sample beyond the end is an error", "[data]") {
    const std::array<std::uint64_t, 1> rows{10};
    CHECK(test::error_of([&] { (void)read(digits{.count = 10, .first = 5}, rows); }) ==
          "lockstep: generated digits (seed 1, from 5): sample 10 of 10 was asked for; number samples from 0 to size() "
          "- 1");
}

}  // namespace
}  // namespace lockstep::data
