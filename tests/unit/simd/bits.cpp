// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/bits.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/core/random.hpp"

namespace simd = lockstep::simd;

TEMPLATE_TEST_CASE("simd/bits: a bit says that a number is not below zero", "[simd]", float, double) {
    using T = TestType;
    const lockstep::core::random_stream random{3, lockstep::core::purpose::user};
    for (const std::size_t n : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 100}) {
        std::vector<T> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(random.normal(i));
        if (n > 4) {
            values[1] = std::numeric_limits<T>::quiet_NaN();
            values[2] = -T{0};
            values[3] = -std::numeric_limits<T>::infinity();
            values[4] = -std::numeric_limits<T>::denorm_min();
        }
        std::vector<std::byte> bits(n / 8 + 2, std::byte{0xA5});
        simd::store_signs(values.data(), n, bits.data());
        for (std::size_t i = 0; i < n; ++i)
            REQUIRE((std::to_integer<unsigned>(bits[i / 8]) >> i % 8 & 1U) == (values[i] < 0 ? 0U : 1U));
        if (n % 8 != 0) REQUIRE(std::to_integer<unsigned>(bits[n / 8]) >> n % 8 == 0);
        REQUIRE(bits[(n + 7) / 8] == std::byte{0xA5});
        for (std::size_t first = 0; first < n; ++first) {
            const std::size_t count = std::min<std::size_t>(16, n - first);
            // Exactly the bytes that hold them, so that a sanitizer sees a read of another one.
            const std::vector<std::byte> exact(bits.begin() + static_cast<std::ptrdiff_t>(first / 8),
                                               bits.begin() + static_cast<std::ptrdiff_t>((first + count + 7) / 8));
            const std::uint32_t found = simd::load_bits(exact.data(), first % 8, count);
            for (std::size_t i = 0; i < count; ++i) REQUIRE((found >> i & 1U) == (values[first + i] < 0 ? 0U : 1U));
            REQUIRE(found >> count == 0);
        }
        for (std::size_t first = 0; first < n; first += 3) {
            std::vector<T> sum(n - first, T{1});
            simd::add_chosen(bits.data(), first, T{0.5F}, T{3}, T{-5}, sum.data(), sum.size());
            for (std::size_t i = 0; i < sum.size(); ++i)
                REQUIRE(sum[i] == (values[first + i] < 0 ? T{-1.5F} : T{2.5F}));
        }
    }
}
