// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/canvas.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace lockstep::data {
namespace {

/// The same image by its definition, in double precision and over all pixels.
double expected(const std::vector<std::array<double, 5>>& lines, double x, double y, double edge) {
    double depth = -1e6;
    for (const auto& [ax, ay, bx, by, radius] : lines) {
        const double dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
        const double t = length > 0 ? std::clamp(((x - ax) * dx + (y - ay) * dy) / length, 0.0, 1.0) : 0.0;
        depth = std::max(depth, radius - std::hypot(x - ax - t * dx, y - ay - t * dy));
    }
    return std::clamp(depth / edge + 0.5, 0.0, 1.0);
}

TEST_CASE("data/canvas: lines are drawn by distance, also across the border", "[data]") {
    const std::vector<std::array<double, 5>> lines{{3, 4, 20, 9, 1.5},    {20, 9, 5, 24, 0.7},   {10, 10, 10, 10, 2},
                                                   {-6, 12, 3, 31, 1.25}, {24, -3, 40, 14, 2.5}, {-9, -9, -5, -5, 1}};
    canvas<28, 30> paper;
    constexpr float edge = 1.25F;
    for (const auto& [ax, ay, bx, by, radius] : lines)
        paper.line({static_cast<float>(ax), static_cast<float>(ay)}, {static_cast<float>(bx), static_cast<float>(by)},
                   static_cast<float>(radius), edge);
    std::size_t black = 0, grey = 0;
    for (std::size_t row = 0; row < 28; ++row)
        for (std::size_t column = 0; column < 30; ++column) {
            const double wanted = expected(lines, static_cast<double>(column), static_cast<double>(row), edge);
            CHECK(static_cast<double>(paper.ink(row, column, edge)) == Approx(wanted).margin(1e-5));
            black += wanted == 1;
            grey += wanted > 0 && wanted < 1;
        }
    CHECK(black > 50);
    CHECK(grey > 50);
}

TEST_CASE("data/canvas: a line without a place draws nothing, or to the border", "[data]") {
    constexpr float none = std::numeric_limits<float>::quiet_NaN(), far = std::numeric_limits<float>::infinity();
    canvas<5, 5> paper;
    paper.line({none, none}, {none, none}, 1, 1);
    for (std::size_t pixel = 0; pixel < 25; ++pixel) CHECK(paper.ink(pixel / 5, pixel % 5, 1) == 0);
    paper.line({-far, 2}, {2, far}, 1, 1);  // stays inside of its memory
}

TEST_CASE("data/canvas: an empty canvas is white", "[data]") {
    const canvas<5, 5> paper;
    for (std::size_t pixel = 0; pixel < 25; ++pixel) CHECK(paper.ink(pixel / 5, pixel % 5, 1) == 0);
}

}  // namespace
}  // namespace lockstep::data
