// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/sampled_top_k.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

/// A message, and that it is the m largest of these values.
template <class T>
std::size_t sends_the_largest(channel<T, sampled_top_k>& one, const std::vector<T>& values) {
    const std::size_t n = values.size();
    const auto message = one.encode(values);
    const std::size_t m = message.size() / (sizeof(T) + 4);
    CHECK(message.size() % (sizeof(T) + 4) == 0);
    CHECK(m <= one.compressor.most(n));
    CHECK(one.guard_holds());
    const auto decoded = one.decode(message);
    CHECK(decoded == by_sorting(values, m));
    if (n > 0) {
        CHECK(m >= 1);
        CHECK(square_of_rest(values, decoded) * static_cast<long double>(n) <=
              static_cast<long double>(n - m) * square(values));
    }
    return m;
}

}  // namespace

TEMPLATE_TEST_CASE("compress/sampled_top_k: the m largest, whatever the vector", "[compress]", float, double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (double ratio : {0.001, 0.1, 0.5, 1.0}) {
            INFO(n << " values, ratio " << ratio);
            channel<T, sampled_top_k> one{sampled_top_k{.ratio = ratio}, n};
            sends_the_largest(one, normals<T>(n, 7, 3));
            sends_the_largest(one, std::vector<T>(n));
            sends_the_largest(one, std::vector<T>(n, T{-2}));
            std::vector<T> single(n);
            if (n > 0) single[n / 2] = T{1};
            sends_the_largest(one, single);
        }
}

TEMPLATE_TEST_CASE("compress/sampled_top_k: numbers that are not finite are never left out", "[compress]", float,
                   double) {
    using T = TestType;
    auto values = normals<T>(3000, 2);
    values[83] = -std::numeric_limits<T>::infinity();
    channel<T, sampled_top_k> one{sampled_top_k{.ratio = 0.01}, 3000};
    CHECK(one.decode(one.encode(values))[83] == values[83]);
    values[97] = std::numeric_limits<T>::quiet_NaN();
    CHECK(std::isnan(one.decode(one.encode(values))[97]));
    std::fill(values.begin(), values.end(), values[97]);
    CHECK(std::isnan(one.decode(one.encode(values))[0]));
}

TEST_CASE("compress/sampled_top_k: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(sampled_top_k{}.check());
    CHECK_THROWS_WITH(sampled_top_k{.ratio = 0}.check(),
                      Catch::Contains("sampled_top_k has ratio = 0, outside (0, 1]"));
    CHECK_THROWS_AS(sampled_top_k{.ratio = 1.01}.check(), core::error);
    CHECK_THROWS_AS(sampled_top_k{.ratio = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
    CHECK_THROWS_WITH(sampled_top_k{}.max_bytes<float>(std::size_t{1} << 32),
                      Catch::Contains("sampled_top_k is asked for 4294967296"));
    CHECK(sampled_top_k{.ratio = 0.25}.settings() == "ratio=0.25");
}

TEMPLATE_TEST_CASE("compress/sampled_top_k: 0.8 k to k elements of what a sample can tell", "[compress]", float,
                   double) {
    using T = TestType;
    // Heavy tails, too: the threshold follows the sample, not a law.
    for (int spread : {0, 4})
        for (double ratio : {0.001, 0.01, 0.1}) {
            const std::size_t n = 65536, k = share_of(ratio, n);
            channel<T, sampled_top_k> one{sampled_top_k{.ratio = ratio}, n};
            const std::size_t m = sends_the_largest(one, normals<T>(n, 5, spread));
            INFO(m << " of " << k);
            CHECK(10 * m >= 8 * k);
        }
    // The threshold of the sample, 1, comes down ten times: to 0.107.
    for (const T others : {T{0.12F}, T{0.1F}}) {
        const std::size_t n = 10'000, k = 100;
        channel<T, sampled_top_k> one{sampled_top_k{.ratio = 0.01}, n};
        std::vector<T> values(n, T{0.001F}), places(n), seen(one.compressor.sample_size(n));
        for (std::size_t i = 0; i < n; ++i) places[i] = static_cast<T>(i);
        kernels::sample(std::span<const T>{places}, std::span{seen});
        for (std::size_t i = 0; i < n; i += 20) values[i] = others;
        for (const T place : seen) values[static_cast<std::size_t>(place)] = T{0.001F};
        for (int i = 0; i < 2; ++i) values[static_cast<std::size_t>(seen[static_cast<std::size_t>(i)])] = 1;
        CHECK(sends_the_largest(one, values) == (others > T{0.11F} ? k : 2));
    }
    CHECK(sampled_top_k{.ratio = 0.001}.sample_size(65536) == 2000);
    CHECK(sampled_top_k{.ratio = 0.1}.sample_size(65536) == 656);
    CHECK(sampled_top_k{.ratio = 0.001}.sample_size(100) == 100);
    CHECK(sampled_top_k{.ratio = 0.01}.most(65536) == 656);
    CHECK(sampled_top_k{.ratio = 0.01}.max_bytes<float>(65536) == 8 * 656);
}
