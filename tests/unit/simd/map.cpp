// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/simd/map.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

namespace simd = lockstep::simd;

namespace {

template <class T>
std::vector<T> numbers(std::size_t count, int which) {
    std::vector<T> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(std::sin(static_cast<double>(7 * i) + which));
    return out;
}

/// A function that rounds several times and calls the vector library, so another path would show in the last bits.
const auto curve = [](const auto& a, const auto& b, auto& out) { out = tanh(a * b + a) + out * b; };

template <class T>
T alone(T a, T b, T start) {
    T out = start;
    simd::map(1, curve, static_cast<const T*>(&a), static_cast<const T*>(&b), &out);
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("simd/map: an element has the same bits alone and anywhere in an array", "[simd]", float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    constexpr TestType guard = 99;
    for (std::size_t n = 0; n <= 3 * width + 1; ++n)
        for (std::size_t offset = 0; offset <= width; ++offset) {
            const auto a = numbers<TestType>(n + offset, 1);
            const auto b = numbers<TestType>(n + 2 * offset, 2);
            const auto start = numbers<TestType>(n, 3);
            std::vector<TestType> out(offset + n + 1, guard);
            std::copy(start.begin(), start.end(), out.begin() + static_cast<std::ptrdiff_t>(offset));
            simd::map(n, curve, a.data() + offset, b.data() + 2 * offset, out.data() + offset);
            INFO("n " << n << " offset " << offset);
            for (std::size_t i = 0; i < offset; ++i) REQUIRE(out[i] == guard);
            REQUIRE(out[offset + n] == guard);
            for (std::size_t i = 0; i < n; ++i) {
                const TestType expected = alone(a[offset + i], b[2 * offset + i], start[i]);
                REQUIRE(std::memcmp(&out[offset + i], &expected, sizeof(TestType)) == 0);
            }
        }
}

TEMPLATE_TEST_CASE("simd/map: each element is computed from its own place", "[simd]", float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    for (std::size_t n = 0; n <= 3 * width + 1; ++n) {
        const auto a = numbers<TestType>(n, 1);
        auto b = numbers<TestType>(n, 2);
        const auto before = b;
        std::vector<TestType> sum(n, TestType{-1});
        // Two outputs, one of them read as well.
        simd::map(
            n, [](const auto& x, auto& y, auto& z) { z = x + y, y = x - y; }, a.data(), b.data(), sum.data());
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(sum[i] == a[i] + before[i]);
            REQUIRE(b[i] == a[i] - before[i]);
        }
    }
}

TEMPLATE_TEST_CASE("simd/map: input and output may be one array", "[simd]", float, double) {
    for (std::size_t n = 0; n <= 3 * simd::width<TestType> + 1; ++n) {
        auto x = numbers<TestType>(n, 1);
        const auto before = x;
        simd::map(
            n, [](const auto& in, auto& out) { out = in * in; }, static_cast<const TestType*>(x.data()), x.data());
        for (std::size_t i = 0; i < n; ++i) REQUIRE(x[i] == before[i] * before[i]);
    }
}

TEMPLATE_TEST_CASE("simd/map: a result by itself has the bits of one that map leaves, also past the caches", "[simd]",
                   float, double) {
    constexpr std::size_t width = simd::width<TestType>;
    constexpr TestType guard = 99;
    for (std::size_t n = 0; n <= 3 * width + 1; ++n) {
        const auto a = numbers<TestType>(n, 1), b = numbers<TestType>(n, 2);
        const auto f = [](const auto& left, const auto& right) { return tanh(left * right + left); };
        std::vector<TestType> want(n);
        simd::map(
            n, [&](const auto& left, const auto& right, auto& to) { to = f(left, right); }, a.data(), b.data(),
            want.data());
        for (const bool streamed : {false, true}) {
            alignas(simd::alignment) TestType got[3 * width + 2];
            std::fill(std::begin(got), std::end(got), guard);
            simd::map_to(n, streamed, f, got, a.data(), b.data());
            simd::stream_end();
            INFO("n " << n << " streamed " << streamed);
            REQUIRE((n == 0 || std::memcmp(got, want.data(), n * sizeof(TestType)) == 0));
            REQUIRE(got[n] == guard);
        }
    }
}

TEMPLATE_TEST_CASE("simd/map: a copy has all elements and touches nothing beside them, wherever it begins in a line",
                   "[simd]", float, double) {
    constexpr std::size_t line = simd::alignment / sizeof(TestType), most = 3 * line + 1;
    constexpr TestType guard = 99;
    const auto from = numbers<TestType>(most, 1);
    for (std::size_t n = 0; n <= most; ++n)
        for (std::size_t first = 0; first <= line; ++first)
            for (const bool streamed : {false, true}) {
                alignas(simd::alignment) TestType got[most + line + 1];
                std::fill(std::begin(got), std::end(got), guard);
                simd::copy(from.data(), n, streamed, got + first);
                simd::stream_end();
                INFO("n " << n << " first " << first << " streamed " << streamed);
                REQUIRE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n), got + first));
                REQUIRE(std::count(std::begin(got), std::end(got), guard) ==
                        static_cast<std::ptrdiff_t>(most + line + 1 - n));
            }
}
