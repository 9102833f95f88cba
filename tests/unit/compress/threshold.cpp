// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/threshold.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"

#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/threshold: all elements from the value on, in 8 or 12 bytes each", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (double value : {0.01, 1.0, 2.0, 50.0}) {
            const threshold compressor{.value = value, .most_share = 1};
            channel<T, threshold> one{compressor, n};
            const auto values = normals<T>(n, 7, 1);
            const auto message = one.encode(values);
            std::vector<T> expected(n);
            std::size_t k = 0;
            for (std::size_t i = 0; i < n; ++i)
                if (std::abs(values[i]) >= static_cast<T>(value)) {
                    expected[i] = values[i];
                    ++k;
                }
            INFO(n << " values, from " << value);
            CHECK(message.size() == (sizeof(T) + 4) * k);
            CHECK(one.most == (sizeof(T) + 4) * n);
            CHECK(one.guard_holds());
            CHECK(one.decode(message) == expected);
        }
    const std::vector<T> values{T{1}, T{-1}, T{0.5F}};
    channel<T, threshold> one{threshold{.value = 1, .most_share = 1}, 3};
    CHECK(one.decode(one.encode(values)) == std::vector<T>{T{1}, T{-1}, T{0}});
}

TEMPLATE_TEST_CASE("compress/threshold: of more than fit, the largest, and of equal ones the lowest indices",
                   "[compress]", float, double) {
    using T = TestType;
    for (std::size_t n : {1, 31, 257, 5003})
        for (double share : {0.001, 0.05, 0.4}) {
            channel<T, threshold> one{threshold{.value = 0.05, .most_share = share}, n};
            const auto values = normals<T>(n, 3, 2);
            const auto message = one.encode(values);
            const std::size_t k = message.size() / (sizeof(T) + 4);
            INFO(n << " values, at most " << share);
            CHECK(k <= share_of(share, n));
            CHECK(one.guard_holds());
            const auto decoded = one.decode(message);
            CHECK(decoded == by_sorting(values, k));
            CHECK(square_of_rest(values, decoded) <=
                  (1 - static_cast<long double>(k) / static_cast<long double>(n)) * square(values));
        }
    std::vector<T> equal(100, T{-2});
    channel<T, threshold> one{threshold{.value = 1, .most_share = 0.03}, 100};
    CHECK(one.decode(one.encode(equal)) == by_sorting(equal, 3));
}

TEMPLATE_TEST_CASE("compress/threshold: zeros send nothing, and numbers that are not finite are sent first",
                   "[compress]", float, double) {
    using T = TestType;
    channel<T, threshold> one{threshold{.value = 0.5, .most_share = 0.01}, 100};
    CHECK(one.encode(std::vector<T>(100)).empty());
    std::vector<T> values(100, T{3});
    values[83] = -std::numeric_limits<T>::infinity();
    CHECK(one.decode(one.encode(values))[83] == values[83]);
    values[20] = std::numeric_limits<T>::quiet_NaN();
    CHECK(std::isnan(one.decode(one.encode(values))[20]));
}

TEST_CASE("compress/threshold: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(threshold{}.check());
    CHECK_THROWS_WITH(
        threshold{.value = 0}.check(),
        "lockstep: threshold has value = 0; give the magnitude from which elements are sent, such as 0.001");
    CHECK_THROWS_AS(threshold{.value = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
    CHECK_THROWS_AS(threshold{.value = std::numeric_limits<double>::infinity()}.check(), core::error);
    // Infinite or 0 as a float.
    for (const double value : {1e39, 1e-50}) CHECK_THROWS_AS(threshold{.value = value}.check(), core::error);
    CHECK_THROWS_WITH(threshold{.most_share = 1.5}.check(),
                      Catch::Contains("threshold has most_share = 1.5, outside (0, 1]"));
    CHECK(threshold{}.settings() == "value=0.001 most_share=0.1");
}

TEST_CASE("compress/varies: compressors around others say what is inside", "[compress]") {
    const threshold inner{.value = 1};
    const quantize fixed{};
    CHECK(varies(inner));
    CHECK(varies(gaussian_top_k{}));
    CHECK(varies(qsgd{.coding = level_coding::elias}));
    CHECK_FALSE(varies(qsgd{}));
    CHECK_FALSE(varies(fixed));
    CHECK(varies(error_feedback{inner}));
    CHECK(varies(two_sided{error_feedback{inner}}));
    CHECK(varies(chain{inner, fixed}));
    CHECK(varies(chain{top_k{}, qsgd{.coding = level_coding::elias}}));
    CHECK(varies(warm_up{inner}));
    CHECK(varies(by_layer{fixed, inner}));
    CHECK(varies(any{error_feedback{inner}}));
    CHECK(varies(measured{inner, nullptr}));
    CHECK_FALSE(varies(any{error_feedback{fixed}}));
    CHECK_FALSE(varies(by_layer{fixed, top_k{}}));
}
