// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/none.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/none: decodes to what was encoded", "[compress]", float, double) {
    using T = TestType;
    for (std::size_t n : sizes<T>()) {
        channel<T, none> one{none{}, n};
        const auto values = normals<T>(n, 3);
        const auto message = one.encode(values);
        CHECK(message.size() == n * sizeof(T));
        CHECK(one.guard_holds());
        CHECK(one.decode(message) == values);

        std::vector<T> sum = normals<T>(n, 4);
        const auto before = sum;
        none{}.decode_add(message, T{-0.5F}, std::span<T>{sum});
        for (std::size_t i = 0; i < n; ++i) REQUIRE(sum[i] == std::fma(T{-0.5F}, values[i], before[i]));
    }
}

TEST_CASE("compress/none: messages may be added as numbers", "[compress]") {
    constexpr std::size_t n = 37;
    channel<float, none> one{none{}, n}, other{none{}, n};
    const auto a = normals<float>(n, 1), b = normals<float>(n, 2);
    const auto left = one.encode(a), right = other.encode(b);
    std::vector<float> x(n), y(n);
    std::memcpy(x.data(), left.data(), left.size());
    std::memcpy(y.data(), right.data(), right.size());
    for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
    const auto decoded = one.decode(std::as_bytes(std::span{x}));
    for (std::size_t i = 0; i < n; ++i) CHECK(decoded[i] == a[i] + b[i]);
}

TEST_CASE("compress/none: numbers that are not finite arrive", "[compress]") {
    channel<float, none> one{none{}, 3};
    const std::vector<float> values{std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
                                    1};
    const auto decoded = one.decode(one.encode(values));
    CHECK(std::isnan(decoded[0]));
    CHECK(decoded[1] == values[1]);
    CHECK(decoded[2] == 1);
    CHECK(none{}.settings().empty());
}
