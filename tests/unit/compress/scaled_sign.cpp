// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/scaled_sign.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "reference_quantisers.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEST_CASE("compress/scaled_sign: sums and residuals are those of the formulas", "[compress]") {
    constexpr std::size_t n = reference::rows * reference::columns;
    const auto& expected = reference::scaled_sign;
    std::vector<channel<double, error_feedback<scaled_sign>>> workers(reference::voters, {{}, n});
    for (std::size_t step = 0; step < expected.sums.size(); ++step) {
        std::vector<double> sum(n), values(n);
        for (std::size_t worker = 0; worker < workers.size(); ++worker) {
            for (std::size_t i = 0; i < n; ++i)
                values[i] = reference_number<double>((step * workers.size() + worker) * n + i);
            const auto decoded = workers[worker].decode(workers[worker].encode(values));
            for (std::size_t i = 0; i < n; ++i) sum[i] += decoded[i];
        }
        for (std::size_t i = 0; i < n; ++i)
            CHECK(sum[i] == Approx(expected.sums[step][i]).epsilon(1e-12).margin(1e-12));
    }
    for (std::size_t i = 0; i < n; ++i)
        CHECK(workers[1].slots[i] == Approx(expected.residual[i]).epsilon(1e-12).margin(1e-12));
}

TEMPLATE_TEST_CASE("compress/scaled_sign: n / 8 bytes and a scale, the mean magnitude with the sign", "[compress]",
                   float, double) {
    using T = TestType;
    for (const std::size_t n : sizes<T>()) {
        channel<T, scaled_sign> one{{}, n};
        auto values = normals<T>(n, 7, 2);
        if (n > 3) values[3] = 0;
        const auto message = one.encode(values);
        REQUIRE(message.size() == (n == 0 ? 0 : (n + 7) / 8 + sizeof(T)));
        REQUIRE(one.most == message.size());
        REQUIRE(one.guard_holds());
        const auto decoded = one.decode(message);
        long double sum = 0;
        for (const T value : values) sum += std::abs(static_cast<long double>(value));
        for (std::size_t i = 0; i < n; ++i) {
            // Sums of 1,024 numbers in as many ways as a vector has elements, and two roundings.
            REQUIRE(std::abs(decoded[i]) ==
                    Approx(static_cast<double>(sum / static_cast<long double>(n)))
                        .epsilon((1024 / simd::width<T> + 6) * std::numeric_limits<T>::epsilon()));
            REQUIRE((decoded[i] < 0) == (values[i] < 0));
        }
    }
}

TEMPLATE_TEST_CASE("compress/scaled_sign: what is left out is that of the contraction", "[compress]", float, double) {
    using T = TestType;
    for (const std::size_t n : {1, 2, 100, 5000})
        for (const int spread : {0, 5, 20}) {
            const auto values = normals<T>(n, 3, spread);
            channel<T, scaled_sign> one{{}, n};
            const auto decoded = one.decode(one.encode(values));
            long double sum = 0;
            for (const T value : values) sum += std::abs(static_cast<long double>(value));
            const long double whole = square(values);
            const long double expected = whole - sum * sum / static_cast<long double>(n);
            CHECK(static_cast<double>(square_of_rest(values, decoded)) ==
                  Approx(static_cast<double>(expected)).margin(static_cast<double>(whole) * 1e-4));
            CHECK(expected < whole);
        }
}

TEMPLATE_TEST_CASE("compress/scaled_sign: the residual is p - sent, and all that was left out is sent in the end",
                   "[compress]", float, double) {
    using T = TestType;
    constexpr std::size_t n = 200;
    channel<T, error_feedback<scaled_sign>> one{{}, n};
    const auto values = normals<T>(n, 7);
    std::vector<double> sent(n);
    constexpr std::uint32_t steps = 20'000;  // residuals of a number three times the scale come to some hundreds
    for (std::uint32_t step = 0; step < steps; ++step) {
        std::vector<T> p(n);
        for (std::size_t i = 0; i < n; ++i) p[i] = values[i] + one.slots[i];
        const auto decoded = one.decode(one.encode(values));
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(one.slots[i] == p[i] - decoded[i]);
            sent[i] += static_cast<double>(decoded[i]) / steps;
        }
    }
    for (std::size_t i = 0; i < n; ++i) CHECK(sent[i] == Approx(static_cast<double>(values[i])).margin(0.05));
}

TEMPLATE_TEST_CASE("compress/scaled_sign: zeros, and what is not finite", "[compress]", float, double) {
    using T = TestType;
    channel<T, scaled_sign> one{{}, 40};
    CHECK(one.decode(one.encode(std::vector<T>(40))) == std::vector<T>(40));
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()})
        for (const std::size_t at : {0, 17, 39}) {
            auto values = normals<T>(40, 5);
            values[at] = bad;
            for (const T value : one.decode(one.encode(values))) REQUIRE(!std::isfinite(value));
        }
    // Their sum is more than a float holds, their mean is not.
    channel<T, scaled_sign> large{{}, 1024};
    for (const T value : large.decode(large.encode(std::vector<T>(1024, T{4e36F}))))
        REQUIRE(value == Approx(T{4e36F}).epsilon(1e-5));
    CHECK_NOTHROW(error_feedback{scaled_sign{}}.check());
}
