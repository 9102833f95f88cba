// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/gaussian_top_k.hpp"

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
std::size_t sends_the_largest(channel<T, gaussian_top_k>& one, const std::vector<T>& values) {
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

TEMPLATE_TEST_CASE("compress/gaussian_top_k: the m largest, whatever the vector", "[compress]", float, double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (double ratio : {0.001, 0.1, 0.5, 1.0}) {
            INFO(n << " values, ratio " << ratio);
            channel<T, gaussian_top_k> one{gaussian_top_k{.ratio = ratio}, n};
            sends_the_largest(one, normals<T>(n, 7, 3));
            sends_the_largest(one, std::vector<T>(n));
            sends_the_largest(one, std::vector<T>(n, T{-2}));
            std::vector<T> single(n);
            if (n > 0) single[n / 2] = T{1};
            sends_the_largest(one, single);
        }
    // All of them: sends_all() says so, whatever their mean.
    std::vector<T> shifted(1000);
    for (std::size_t i = 0; i < shifted.size(); ++i) shifted[i] = static_cast<T>(i) / T{500} - T{0.8F};
    channel<T, gaussian_top_k> all{gaussian_top_k{.ratio = 1}, shifted.size()};
    CHECK(sends_all(all.compressor, 0, {}));
    CHECK(sends_the_largest(all, shifted) == shifted.size());
}

TEMPLATE_TEST_CASE("compress/gaussian_top_k: numbers that are not finite are never left out", "[compress]", float,
                   double) {
    using T = TestType;
    auto values = normals<T>(3000, 2);
    values[83] = -std::numeric_limits<T>::infinity();
    channel<T, gaussian_top_k> one{gaussian_top_k{.ratio = 0.01}, 3000};
    CHECK(one.decode(one.encode(values))[83] == values[83]);
    values[97] = std::numeric_limits<T>::quiet_NaN();
    CHECK(std::isnan(one.decode(one.encode(values))[97]));
    std::fill(values.begin(), values.end(), values[97]);
    CHECK(std::isnan(one.decode(one.encode(values))[0]));
}

TEST_CASE("compress/gaussian_top_k: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(gaussian_top_k{}.check());
    CHECK_THROWS_WITH(gaussian_top_k{.ratio = 0}.check(),
                      Catch::Contains("gaussian_top_k has ratio = 0, outside (0, 1]"));
    CHECK_THROWS_AS(gaussian_top_k{.ratio = 1.01}.check(), core::error);
    CHECK_THROWS_AS(gaussian_top_k{.ratio = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
    CHECK_THROWS_WITH(gaussian_top_k{}.max_bytes<float>(std::size_t{1} << 32),
                      Catch::Contains("gaussian_top_k is asked for 4294967296"));
    CHECK(gaussian_top_k{.ratio = 0.25}.settings() == "ratio=0.25");
}

TEMPLATE_TEST_CASE("compress/gaussian_top_k: 2k/3 to 4k/3 of normal deviates, and of those that four changes can reach",
                   "[compress]", float, double) {
    using T = TestType;
    for (int spread : {0, 2})
        for (double ratio : {0.001, 0.01, 0.1, 0.5}) {
            const std::size_t n = 65536, k = share_of(ratio, n);
            channel<T, gaussian_top_k> one{gaussian_top_k{.ratio = ratio}, n};
            const std::size_t m = sends_the_largest(one, normals<T>(n, 5, spread));
            INFO(m << " of " << k << ", spread " << spread);
            CHECK(3 * m >= 2 * k);
            CHECK(m <= std::min(n, k + (k + 2) / 3));
        }
    CHECK(gaussian_top_k{.ratio = 0.01}.most(65536) == 656 + 219);
    CHECK(gaussian_top_k{.ratio = 0.9}.most(10) == 10);
    CHECK(gaussian_top_k{.ratio = 0.01}.max_bytes<float>(65536) == 8 * 875);
}

TEST_CASE("compress/gaussian_top_k: quantiles of the normal distribution", "[compress]") {
    // P(deviate < x) = erfc(-x / sqrt 2) / 2.
    for (double p : {1e-12, 1e-6, 0.001, 0.02, 0.0243, 0.1, 0.3, 0.5, 0.7, 0.97, 0.9758, 0.999, 1 - 1e-9}) {
        const double x = gaussian_top_k::normal_quantile(p);
        CHECK(std::erfc(-x / std::sqrt(2.0)) / 2 == Approx(p).epsilon(1e-7));
    }
    CHECK(gaussian_top_k::normal_quantile(0.5) == 0);
}
