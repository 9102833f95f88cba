// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/normalisation/local_response.hpp"

#include <catch2/catch.hpp>

#include "lockstep/core/hash.hpp"
#include "reference/normalisation.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::local_response;

TEMPLATE_TEST_CASE("kernels/local_response: against the reference, equal bits on any number of threads and in place",
                   "[kernels]", float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    for (const local_response& how :
         {local_response{}, local_response{.window = 3, .alpha = 0.5, .beta = 0.5, .offset = 1},
          local_response{.window = 7, .alpha = 1, .beta = 1, .offset = 1},
          local_response{.window = 1, .alpha = 0.7, .beta = 0.6, .offset = 1.5}})
        for (const std::size_t channels :
             {std::size_t{1}, std::size_t{2}, w - 1, w, w + 1, std::size_t{37}, std::size_t{96}})
            for (const std::size_t pixels : {0, 1, 2, 11}) {
                const auto x = uniform<TestType>(pixels * channels, 1), dy = uniform<TestType>(pixels * channels, 2);
                std::vector<double> y(x.size()), dx(x.size());
                kernels::reference::local_response_forward(how, pixels, channels, x.data(), y.data());
                kernels::reference::local_response_backward(how, pixels, channels, x.data(), dy.data(), dx.data());
                INFO("window " << how.window << " beta " << how.beta << " channels " << channels << " pixels "
                               << pixels);
                array<TestType> first_y, first_dx;
                for (const int threads : thread_counts()) {
                    scratch<TestType> s(kernels::local_response_scratch<TestType>(channels, how.window, {threads}),
                                        {threads});
                    auto got = unwritten<TestType>(x.size()), gradient = got;
                    kernels::local_response_forward<TestType>(how, pixels, channels, x.data(), got.data(), s.use);
                    kernels::local_response_backward<TestType>(how, pixels, channels, x.data(), dy.data(),
                                                               gradient.data(), s.use);
                    // A base up to 1 + 7/4, its power (logarithm and exponential within two units) and the factors:
                    // each rounds numbers below 1 in magnitude; the window adds its terms once more.
                    REQUIRE(distance(got, y) <= (static_cast<double>(how.window) + 12) * 0.5 * eps);
                    REQUIRE(distance(gradient, dx) <=
                            (static_cast<double>(how.window) + 12) * (1 + static_cast<double>(how.window)) * 0.5 * eps);
                    if (threads == 1) {
                        first_y = got;
                        first_dx = gradient;
                        auto in_place = x, back = dy;
                        kernels::local_response_forward<TestType>(how, pixels, channels, in_place.data(),
                                                                  in_place.data(), s.use);
                        kernels::local_response_backward<TestType>(how, pixels, channels, x.data(), back.data(),
                                                                   back.data(), s.use);
                        REQUIRE(same_bits(in_place, got));
                        REQUIRE(same_bits(back, gradient));
                    }
                    REQUIRE(same_bits(got, first_y));
                    REQUIRE(same_bits(gradient, first_dx));
                }
            }
}

TEMPLATE_TEST_CASE("kernels/local_response: a NaN reaches its window and no other pixel", "[kernels]", float, double) {
    constexpr std::size_t channels = 11;
    for (std::size_t at = 0; at < channels; ++at) {
        auto x = uniform<TestType>(3 * channels, 1);
        const auto dy = uniform<TestType>(3 * channels, 2);
        x[channels + at] = std::numeric_limits<TestType>::quiet_NaN();
        scratch<TestType> s(kernels::local_response_scratch<TestType>(channels, 5, {1}), {1});
        auto y = unwritten<TestType>(x.size()), dx = y;
        kernels::local_response_forward<TestType>({}, 3, channels, x.data(), y.data(), s.use);
        kernels::local_response_backward<TestType>({}, 3, channels, x.data(), dy.data(), dx.data(), s.use);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t apart = i % channels > at ? i % channels - at : at - i % channels;
            REQUIRE(std::isnan(y[i]) == (i / channels == 1 && apart <= 2));
            REQUIRE(std::isnan(dx[i]) == (i / channels == 1 && apart <= 4));
        }
    }
}

// All floats of every third run of 16 were tried once: none errs by more than 1.899 units.
TEST_CASE(
    "kernels/local_response: base^(-3/4) errs by less than two units, with the same bits wherever multiply-adds round "
    "once",
    "[kernels]") {
    constexpr std::size_t width = simd::width<float>;
    const auto power = [](const std::vector<float>& x) {
        std::vector<float> y(x.size());
        for (std::size_t i = 0; i < x.size(); i += width)
            simd::store(y.data() + i, kernels::detail::inverse_three_quarters(simd::load(x.data() + i)));
        return y;
    };
    std::vector<float> x(1 << 16);
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(std::exp(-87 + 175.5 * static_cast<double>(i) / 65536));
    const auto y = power(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double root = std::sqrt(static_cast<double>(x[i]));
        const double want = 1 / (root * std::sqrt(root));
        REQUIRE(std::abs(static_cast<double>(y[i]) - want) <= 2 * std::ldexp(1.0, std::ilogb(want) - 23));
    }
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(power(std::vector<float>(width, infinity))[0] == 0);
    CHECK(std::isnan(power(std::vector<float>(width, std::numeric_limits<float>::quiet_NaN()))[0]));
    x.resize(4096);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<float>(i) / 43;
    const auto z = power(x);
    if (simd::fma_rounds_once) CHECK(core::hash(std::as_bytes(std::span{z})) == 0xd820220fd01c05fU);
}

TEMPLATE_TEST_CASE("kernels/local_response: results far larger than the caches have the bits of those in place",
                   "[kernels]", float, double) {
    // Whole lines, and pixels whose lines begin anywhere.
    for (const std::size_t channels : {80, 21}) {
        const std::size_t pixels = rows_beyond_caches<TestType>(channels);
        const auto x = repeated<TestType>(pixels * channels, 1), dy = repeated<TestType>(pixels * channels, 2);
        scratch<TestType> s(kernels::local_response_scratch<TestType>(channels, 5, {2}), {2});
        auto apart = unwritten<TestType>(x.size()), place = x;
        kernels::local_response_forward<TestType>({}, pixels, channels, x.data(), apart.data(), s.use);
        kernels::local_response_forward<TestType>({}, pixels, channels, place.data(), place.data(), s.use);
        REQUIRE(same_bits(apart, place));
        place = dy;
        kernels::local_response_backward<TestType>({}, pixels, channels, x.data(), dy.data(), apart.data(), s.use);
        kernels::local_response_backward<TestType>({}, pixels, channels, x.data(), place.data(), place.data(), s.use);
        REQUIRE(same_bits(apart, place));
    }
}
