// SPDX-License-Identifier: BSD-3-Clause
// Sums of squares: against a tree of single numbers, bit for bit, and against long double.

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/sum_of_squares.hpp"

using namespace lockstep;

namespace {

/// The definition: a node is the sum of its halves, the left one a power of two.
template <class T>
double tree(std::span<const T> x) {
    if (x.empty()) return 0;
    if (x.size() == 1) return static_cast<double>(x[0]) * static_cast<double>(x[0]);
    const std::size_t left = std::bit_ceil(x.size()) / 2;
    return tree(x.first(left)) + tree(x.subspan(left));
}

template <class T>
void compare(std::size_t n, std::size_t offset) {
    const core::random_stream random{n, core::purpose::user};
    std::vector<T> all(n + offset);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<T>(random.normal(2 * i) * std::exp(4 * random.normal(2 * i + 1)));
    const std::span<const T> x = std::span{all}.subspan(offset);
    long double exact = 0;
    for (const T one : x) exact += static_cast<long double>(one) * one;
    const double sum = kernels::sum_of_squares(x);
    INFO(n << " numbers from " << offset);
    CHECK(sum == tree(x));
    CHECK(sum == kernels::sum_of_squares_of<T>(n, [&](std::size_t first, std::size_t count, T* out) {
              std::copy_n(x.data() + first, count, out);
          }));
    // The square and the additions above a number round once each.
    const double bound = (std::log2(static_cast<double>(n) + 1) + 2) * std::numeric_limits<double>::epsilon();
    CHECK(std::fabs(static_cast<double>(sum - exact)) <= bound * static_cast<double>(exact));
}

}  // namespace

TEST_CASE("kernels/sum_of_squares: the bits of the tree, for any length and alignment", "[kernels]") {
    for (const std::size_t n : {0,   1,   2,   3,   7,   31,  63,  64,   65,   127,  128,   129,
                                191, 192, 255, 256, 257, 511, 513, 1000, 1024, 4099, 16384, 100'003})
        for (const std::size_t offset : {0, 1, 5}) {
            compare<float>(n, offset);
            compare<double>(n, offset);
        }
}

TEST_CASE("kernels/sum_of_squares: what is not finite stays so, and large floats do not overflow", "[kernels]") {
    for (const std::size_t at : {0, 63, 64, 99}) {
        std::vector<float> x(100, 1.0F);
        x[at] = std::numeric_limits<float>::max();
        CHECK(std::isfinite(kernels::sum_of_squares(std::span<const float>{x})));
        x[at] = HUGE_VALF;
        CHECK(std::isinf(kernels::sum_of_squares(std::span<const float>{x})));
        x[at] = std::nanf("");
        CHECK(std::isnan(kernels::sum_of_squares(std::span<const float>{x})));
    }
}
