// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/compact.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

using namespace lockstep;

TEMPLATE_TEST_CASE("simd/compact: the numbers of large elements, for every pattern of eight neighbours", "[simd]",
                   float, double) {
    using T = TestType;
    constexpr std::size_t width = simd::width<T>;
    constexpr std::uint32_t first = 0xFFFFFF00U;
    const std::vector<T> small{T{0}, T{-0.5F}, T{0.999F}, -std::numeric_limits<T>::denorm_min()};
    const std::vector<T> large{T{1}, T{-1}, std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(),
                               -std::numeric_limits<T>::infinity()};
    for (unsigned pattern = 0; pattern < 256; ++pattern)
        for (std::size_t shift = 0; shift < width; ++shift) {
            std::vector<T> v(width);
            std::vector<std::uint32_t> want;
            for (std::size_t i = 0; i < width; ++i) {
                const bool is_large = (pattern >> ((i + shift) % 8) & 1U) != 0;
                v[i] = is_large ? large[(i + pattern) % large.size()] : small[(i + pattern) % small.size()];
                if (is_large) want.push_back(first + static_cast<std::uint32_t>(i));
            }
            std::vector<std::uint32_t> out(width + 1, 77U);
            REQUIRE(simd::append_large(v.data(), first, simd::batch<T>(T{1}), out.data()) == want.size());
            REQUIRE(out[width] == 77U);
            out.resize(want.size());
            REQUIRE(out == want);
        }
    std::vector<std::uint32_t> out(width);
    const std::vector<T> zeros(width);
    CHECK(simd::append_large(zeros.data(), 0, simd::batch<T>(std::numeric_limits<T>::quiet_NaN()), out.data()) ==
          width);
}
