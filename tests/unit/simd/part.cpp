// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/part.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

namespace simd = lockstep::simd;

TEMPLATE_TEST_CASE("simd/part: the first elements and no others, up to the last one of an array", "[simd]", float,
                   double) {
    constexpr std::size_t width = simd::width<TestType>;
    for (std::size_t count = 0; count <= width; ++count) {
        // Arrays that end where the part ends: code that touches more is seen by the sanitizers.
        std::vector<TestType> from(count), whole(width);
        for (std::size_t i = 0; i < count; ++i) from[i] = static_cast<TestType>(i + 1);
        simd::store(whole.data(), simd::load_first(from.data(), count));
        for (std::size_t i = 0; i < width; ++i)
            CHECK(whole[i] == (i < count ? static_cast<TestType>(i + 1) : TestType{0}));
        std::vector<TestType> to(count + 1, TestType{-1});
        simd::store_first(to.data(), simd::batch<TestType>(TestType{7}), count);
        for (std::size_t i = 0; i < count; ++i) CHECK(to[i] == TestType{7});
        CHECK(to[count] == TestType{-1});
    }
}
