// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/top_k.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEST_CASE("compress/top_k: k is the ratio rounded up, and at least 1", "[compress]") {
    CHECK(top_k{.ratio = 0.01}.count(0) == 0);
    CHECK(top_k{.ratio = 0.01}.count(1) == 1);
    CHECK(top_k{.ratio = 0.01}.count(100) == 1);
    CHECK(top_k{.ratio = 0.01}.count(101) == 2);
    CHECK(top_k{.ratio = 0.07}.count(100) == 7);
    CHECK(top_k{.ratio = 0.001}.count(1'000'000) == 1000);
    CHECK(top_k{.ratio = 0.001}.count(1'000'001) == 1001);
    CHECK(top_k{.ratio = 1}.count(12345) == 12345);
    CHECK(top_k{.ratio = 1e-300}.count(12345) == 1);
    for (std::size_t percent = 1; percent <= 100; ++percent)
        for (std::size_t n : {100, 700, 12800})
            REQUIRE(top_k{.ratio = static_cast<double>(percent) / 100}.count(n) == n * percent / 100);
}

TEMPLATE_TEST_CASE("compress/top_k: exactly the largest magnitudes, in 8 or 12 bytes each", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (double ratio : {0.001, 0.1, 0.5, 1.0}) {
            const top_k compressor{.ratio = ratio};
            channel<T, top_k> one{compressor, n};
            const auto values = normals<T>(n, 7, 3);
            const auto message = one.encode(values);
            INFO(n << " values, ratio " << ratio);
            CHECK(message.size() == (sizeof(T) + 4) * compressor.count(n));
            CHECK(message.size() == one.most);
            CHECK(one.guard_holds());
            CHECK(one.decode(message) == by_sorting(values, compressor.count(n)));
        }
}

TEMPLATE_TEST_CASE("compress/top_k: equal magnitudes: the lowest indices", "[compress]", float, double) {
    using T = TestType;
    for (std::size_t n : {7, 64, 1009}) {
        std::vector<T> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(static_cast<int>(i * 7 % 5) - 2);
        channel<T, top_k> one{top_k{.ratio = 0.3}, n};
        CHECK(one.decode(one.encode(values)) == by_sorting(values, one.compressor.count(n)));
    }
    channel<T, top_k> zeros{top_k{.ratio = 0.5}, 9};
    CHECK(zeros.decode(zeros.encode(std::vector<T>(9))) == std::vector<T>(9));
}

TEMPLATE_TEST_CASE("compress/top_k: contracts by 1 - k/n", "[compress]", float, double) {
    using T = TestType;
    for (std::size_t n : {1, 31, 257, 1009})
        for (double ratio : {0.01, 0.25, 0.9}) {
            channel<T, top_k> one{top_k{.ratio = ratio}, n};
            const auto values = normals<T>(n, 11);
            auto lost = one.decode(one.encode(values));
            for (std::size_t i = 0; i < n; ++i) lost[i] = values[i] - lost[i];
            const auto share = 1 - static_cast<long double>(one.compressor.count(n)) / static_cast<long double>(n);
            CHECK(square(lost) <= share * square(values));
        }
    SECTION("which is reached when all magnitudes are equal") {
        channel<T, top_k> one{top_k{.ratio = 0.25}, 256};
        const std::vector<T> values(256, T{-2});
        auto lost = one.decode(one.encode(values));
        for (std::size_t i = 0; i < 256; ++i) lost[i] = values[i] - lost[i];
        CHECK(square(lost) == 0.75L * square(values));
    }
}

TEMPLATE_TEST_CASE("compress/top_k: adds to what is there, scaled", "[compress]", float, double) {
    using T = TestType;
    channel<T, top_k> one{top_k{.ratio = 0.5}, 4};
    const std::vector<T> values{T{1}, T{-8}, T{2}, T{16}};
    std::vector<T> sum{T{1}, T{2}, T{3}, T{4}};
    one.compressor.decode_add(one.encode(values), T{0.25F}, std::span<T>{sum});
    CHECK(sum == std::vector<T>{T{1}, T{0}, T{3}, T{8}});
}

TEMPLATE_TEST_CASE("compress/top_k: numbers that are not finite are never left out", "[compress]", float, double) {
    using T = TestType;
    const T infinity = std::numeric_limits<T>::infinity();
    auto values = normals<T>(100, 2);
    values[83] = -infinity;
    channel<T, top_k> one{top_k{.ratio = 0.01}, 100};
    CHECK(one.decode(one.encode(values))[83] == -infinity);
    values[97] = std::numeric_limits<T>::quiet_NaN();
    CHECK(std::isnan(one.decode(one.encode(values))[97]));
    values[97] = -values[97];
    CHECK(std::isnan(one.decode(one.encode(values))[97]));
}

TEST_CASE("compress/top_k: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(top_k{}.check());
    CHECK_NOTHROW(top_k{.ratio = 1}.check());
    CHECK_THROWS_WITH(
        top_k{.ratio = 0}.check(),
        "lockstep: top_k has ratio = 0, outside (0, 1]; take the share of elements to send, such as 0.01");
    CHECK_THROWS_AS(top_k{.ratio = 1.01}.check(), core::error);
    CHECK_THROWS_AS(top_k{.ratio = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
    CHECK_THROWS_WITH(top_k{}.max_bytes<float>(std::size_t{1} << 32),
                      "lockstep: top_k is asked for 4294967296 values in one message, but its indices have 32 bits; "
                      "set .segment of the plan, such as 65536");
    CHECK(top_k{.ratio = 0.25}.settings() == "ratio=0.25");
}
