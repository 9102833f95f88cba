// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/exp.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/core/hash.hpp"

namespace simd = lockstep::simd;

namespace {

template <class T>
std::vector<T> powers(const std::vector<T>& x) {
    std::vector<T> y(x.size());
    REQUIRE(x.size() % simd::width<T> == 0);
    for (std::size_t i = 0; i < x.size(); i += simd::width<T>)
        simd::store(y.data() + i, simd::exp_below_zero(simd::load(x.data() + i)));
    return y;
}

}  // namespace

// All numbers of type float were tried once: none errs by more than 1.009 units.
TEMPLATE_TEST_CASE("simd/exp: errs by about one unit in the last place, down to the smallest normal number", "[simd]",
                   float, double) {
    using limits = std::numeric_limits<TestType>;
    const double lowest = std::log(static_cast<double>(limits::min()));
    std::vector<TestType> x(1 << 16);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double part = static_cast<double>(i) / static_cast<double>(x.size());
        // Evenly, and close to 0.
        x[i] = static_cast<TestType>(0.99999 * lowest * (i % 2 == 0 ? part : part * part * part * part));
    }
    const auto y = powers(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const long double want = std::exp(static_cast<long double>(x[i]));
        const long double unit = std::ldexp(1.0L, std::ilogb(want) - (limits::digits - 1));
        REQUIRE(std::abs(static_cast<long double>(y[i]) - want) <= (simd::fma_rounds_once ? 1.01L : 2.0L) * unit);
    }
}

TEMPLATE_TEST_CASE("simd/exp: ends and numbers that are none", "[simd]", float, double) {
    using limits = std::numeric_limits<TestType>;
    std::vector<TestType> x(simd::width<TestType>, TestType{0});
    for (const TestType low : {-limits::infinity(), limits::lowest(), TestType{-1000},
                               static_cast<TestType>(1.0001 * std::log(limits::min()))}) {
        x[0] = low;
        CHECK(powers(x)[0] == TestType{0});
    }
    for (const TestType nan : {limits::quiet_NaN(), -limits::quiet_NaN()}) {
        x[0] = nan;
        CHECK(std::isnan(powers(x)[0]));
        if (x.size() > 1) CHECK(powers(x)[1] == TestType{1});
    }
    x[0] = -TestType{0};
    CHECK(powers(x)[0] == TestType{1});
}

TEMPLATE_TEST_CASE("simd/exp: the same bits on every instruction set with fused multiply-adds", "[simd]", float,
                   double) {
    if (!simd::fma_rounds_once) return;
    std::vector<TestType> x(4096);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = -static_cast<TestType>(i) / 43;
    const auto y = powers(x);
    CHECK(lockstep::core::hash(std::as_bytes(std::span{y})) ==
          (sizeof(TestType) == 4 ? 0xa37cb5092fea0a53U : 0xe81e4dc91996f845U));
}
