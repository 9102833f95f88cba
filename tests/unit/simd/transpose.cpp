// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/transpose.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

namespace simd = lockstep::simd;

TEST_CASE("simd/transpose: four columns of as many rows as a vector has elements, and back", "[simd]") {
    constexpr std::size_t width = simd::width<float>;
    for (const std::size_t ld : {4, 5, 10, 17}) {
        // The array ends with the last column: code that touches more is seen by the sanitizers.
        std::vector<float> from((width - 1) * ld + 4);
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
        simd::batch<float> columns[4];
        simd::load_columns(from.data(), ld, columns);
        for (std::size_t j = 0; j < 4; ++j) {
            std::vector<float> column(width);
            simd::store(column.data(), columns[j]);
            for (std::size_t i = 0; i < width; ++i) REQUIRE(column[i] == from[i * ld + j]);
        }
        std::vector<float> to(from.size(), -1.0F);
        simd::store_columns(to.data(), ld, columns);
        for (std::size_t i = 0; i < to.size(); ++i) REQUIRE(to[i] == (i % ld < 4 ? from[i] : -1.0F));
    }
}
