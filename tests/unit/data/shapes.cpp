// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/shapes.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/core/hash.hpp"
#include "pictures.hpp"

namespace lockstep::data {
namespace {

static_assert(Dataset<shapes> && Dataset<shapes, double>);
constexpr std::size_t size = shapes::sample::size;

std::vector<float> drawn(const shapes& set, std::uint64_t row) {
    std::vector<float> out(size);
    set.draw(row, std::span<float, size>{out.data(), size});
    return out;
}

TEST_CASE("data/shapes: the same bits on every machine", "[data]") {
    std::vector<float> all(100 * size);
    for (std::uint64_t row = 0; row < 100; ++row)
        shapes{}.draw(row, std::span<float, size>{all.data() + row * size, size});
    CHECK(core::hash(std::as_bytes(std::span{all})) == 0x73bd15230281c1f9U);
}

TEST_CASE("data/shapes: an image is a function of seed and number", "[data]") {
    const shapes set;
    CHECK(drawn(set, 12) == drawn(shapes{.first = 10}, 2));
    CHECK(drawn(set, 12) != drawn(set, 13));
    CHECK(drawn(set, 12) != drawn(shapes{.seed = 2}, 12));
    CHECK(drawn(set, 12) != drawn(shapes{.noise = 0}, 12));
    CHECK(set.settings() != shapes{.first = 10}.settings());

    std::vector<float> x(2 * size);
    std::array<std::int32_t, 2> y{};
    set.read<float>(std::array<std::uint64_t, 2>{12, 3}, {x.data(), 2}, y);
    std::vector<float> expected = drawn(set, 12);
    for (float& one : expected) one = (one - set.mean) / set.deviation;
    CHECK(std::equal(expected.begin(), expected.end(), x.begin()));
}

TEST_CASE("data/shapes: classes are equally frequent, light lies within 0 and 1, mean and deviation are as stated",
          "[data]") {
    const shapes set;
    std::vector<std::size_t> found(10);
    std::vector<float> x(size);
    double sum = 0, squares = 0;
    float least = 1, most = 0;
    constexpr std::size_t images = 2000;
    for (std::uint64_t row = 0; row < images; ++row) {
        const auto label = set.draw(row, std::span<float, size>{x.data(), size});
        REQUIRE(label >= 0);
        REQUIRE(label < 10);
        ++found[static_cast<std::size_t>(label)];
        for (const float one : x) {
            sum += static_cast<double>(one);
            squares += static_cast<double>(one) * static_cast<double>(one);
            least = std::min(least, one);
            most = std::max(most, one);
        }
    }
    CHECK(test::chi_square(found) < 27.88);  // 9 degrees of freedom: exceeded once in a thousand seeds
    CHECK(least == 0);
    CHECK(most == 1);
    const double n = static_cast<double>(images * size), mean = sum / n;
    CHECK(std::abs(mean - static_cast<double>(set.mean)) < 0.01);
    CHECK(std::abs(std::sqrt(squares / n - mean * mean) - static_cast<double>(set.deviation)) < 0.01);
}

TEST_CASE("data/shapes: without noise and uneven light a shape is there, and as wide as its kind", "[data]") {
    // The pixels that differ from the corner's colour by more than light and noise can: every class covers some part,
    // none all.
    std::array<double, 10> share{};
    std::array<std::size_t, 10> seen{};
    const shapes set{.noise = 0};
    std::vector<float> x(size);
    for (std::uint64_t row = 0; row < 1000; ++row) {
        const auto kind = static_cast<std::size_t>(set.draw(row, std::span<float, size>{x.data(), size}));
        std::size_t covered = 0;
        for (std::size_t p = 0; p < 1024; ++p) {
            float apart = 0;
            for (std::size_t c = 0; c < 3; ++c) apart += std::abs(x[3 * p + c] - x[c]);
            covered += apart > 0.5F;
        }
        share[kind] += static_cast<double>(covered) / 1024;
        ++seen[kind];
    }
    for (std::size_t kind = 0; kind < 10; ++kind) share[kind] /= static_cast<double>(seen[kind]);
    for (const double one : share) {
        CHECK(one > 0.05);
        CHECK(one < 0.5);
    }
    CHECK(share[0] > share[1]);  // a disc is more than a ring
    CHECK(share[2] > share[3]);  // a square is more than a frame
}

TEST_CASE("data/shapes: numbers that make no sense are refused", "[data]") {
    constexpr float none = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    for (const float one : {0.0F, 0.15F, 1e30F}) CHECK_NOTHROW(shapes{.noise = one}.check());
    for (const float one : {-0.1F, infinite, none})
        CHECK_THROWS_WITH(shapes{.noise = one}.check(), "lockstep: generated shapes (seed 1, from 0) has the noise " +
                                                            core::text(one) +
                                                            "; give it a finite noise of 0 or more: light goes from 0 "
                                                            "to 1");
    CHECK_THROWS_WITH(shapes{.mean = none}.check(), Catch::Contains("has the mean nan and the deviation 0.2313"));
    CHECK_THROWS_WITH(shapes{.deviation = infinite}.check(), Catch::Contains("and the deviation inf"));
}

}  // namespace
}  // namespace lockstep::data
