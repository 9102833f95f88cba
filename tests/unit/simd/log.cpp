// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/log.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/core/hash.hpp"

namespace simd = lockstep::simd;

namespace {

constexpr std::size_t width = simd::width<double>;

std::vector<double> logarithms(std::vector<double> x) {
    x.resize((x.size() + width - 1) / width * width, 1.0);
    for (std::size_t i = 0; i < x.size(); i += width)
        simd::store(x.data() + i, simd::log_above_one(simd::load(x.data() + i)));
    return x;
}

}  // namespace

TEST_CASE("simd/log: errs by less than two thirds of a unit in the last place", "[simd]") {
    std::vector<double> x;
    for (int i = 0; i < 60000; ++i) {
        const double part = i / 60000.0;
        x.push_back(1 + part);                                  // where the exponent changes, at sqrt(2)
        x.push_back(1 + std::ldexp(part, -i % 40));             // close to 1
        x.push_back(static_cast<float>(std::exp2(24 * part)));  // sums of softmax
        x.push_back(std::exp2(1023.9 * part));                  // all of the range
    }
    for (const double power : {0.5, 1.0, 1.5, 2.0, 23.5, 1023.5})
        for (int i = -50; i <= 50; ++i) x.push_back(std::exp2(power) * (1 + i * 0x1p-52));
    x.push_back(std::numeric_limits<double>::max());
    const auto y = logarithms(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const long double want = std::log(static_cast<long double>(x[i]));
        const long double unit = std::ldexp(1.0L, (want == 0 ? -1022 : std::ilogb(want)) - 52);
        INFO("x " << x[i]);
        REQUIRE(std::abs(static_cast<long double>(y[i]) - want) <= 0.65L * unit);
    }
}

TEST_CASE("simd/log: one is exact and a NaN stays by itself", "[simd]") {
    for (std::size_t at = 0; at < width; ++at) {
        std::vector<double> x(width, 1.0);
        x[at] = std::numeric_limits<double>::quiet_NaN();
        const auto y = logarithms(x);
        for (std::size_t i = 0; i < width; ++i) {
            if (i == at)
                CHECK(std::isnan(y[i]));
            else
                CHECK(y[i] == 0);
        }
    }
}

TEST_CASE("simd/log: the same bits on every instruction set with fused multiply-adds", "[simd]") {
    if (!simd::fma_rounds_once) return;
    std::vector<double> x(4096);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<double>(i) / 43;
    const auto y = logarithms(x);
    CHECK(lockstep::core::hash(std::as_bytes(std::span{y})) == 0x4a0f55e5437eb1abU);
}
