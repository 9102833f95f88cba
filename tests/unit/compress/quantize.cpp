// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/quantize.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

template <class T>
T largest(std::span<const T> values) {
    T out{0};
    for (T value : values) out = std::max(out, std::abs(value));
    return out;
}

/// The step that the message holds for the bucket of element i.
template <class T>
T step_at(std::span<const std::byte> message, const quantize& compressor, std::size_t i) {
    T step;
    std::memcpy(&step, message.data() + i / compressor.bucket * sizeof(T), sizeof(T));
    return step;
}

}  // namespace

TEMPLATE_TEST_CASE("compress/quantize: one step for each bucket and b bits for each value", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (std::size_t bits = 2; bits <= 8; ++bits)
            for (std::size_t bucket : {1, 7, 100, 512, 5000}) {
                channel<T, quantize> one{quantize{.bits = bits, .bucket = bucket}, n};
                const auto message = one.encode(normals<T>(n, 3));
                REQUIRE(message.size() == (n * bits + 7) / 8 + sizeof(T) * ((n + bucket - 1) / bucket));
                REQUIRE(message.size() == one.most);
                REQUIRE(one.guard_holds());
            }
    // The bits are those that 2s+1 levels need.
    for (int bits = 2; bits <= 8; ++bits) CHECK(std::ceil(std::log2(2.0 * ((1 << (bits - 1)) - 1) + 1)) == bits);
}

TEMPLATE_TEST_CASE("compress/quantize: each value becomes a neighbouring multiple of its step", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (std::size_t bits = 2; bits <= 8; ++bits)
            for (std::size_t bucket : {1, 7, 100, 512}) {
                const quantize compressor{.bits = bits, .bucket = bucket};
                channel<T, quantize> one{compressor, n};
                const auto values = normals<T>(n, 5, 2);
                const auto message = one.encode(values);
                const auto decoded = one.decode(message);
                const auto s = static_cast<double>((1U << (bits - 1)) - 1);
                for (std::size_t i = 0; i < n; ++i) {
                    const std::size_t first = i / bucket * bucket;
                    const auto most = static_cast<double>(
                        largest(std::span<const T>{values}.subspan(first, std::min(bucket, n - first))));
                    const auto step = static_cast<double>(step_at<T>(message, compressor, i));
                    REQUIRE(step * s >= most);
                    REQUIRE(step <= most / s + 2 * most * std::ldexp(1.0, 2 - std::numeric_limits<T>::digits));
                    const double level = static_cast<double>(decoded[i]) / step;
                    REQUIRE(level == std::round(level));
                    REQUIRE(std::abs(level) <= s);
                    REQUIRE(static_cast<double>(decoded[i]) * static_cast<double>(values[i]) >= 0);
                    REQUIRE(std::abs(static_cast<double>(decoded[i]) - static_cast<double>(values[i])) < step);
                }
            }
}

TEMPLATE_TEST_CASE("compress/quantize: the mean of many messages is the vector", "[compress]", float, double) {
    using T = TestType;
    constexpr std::size_t n = 203;
    constexpr std::uint32_t draws = 20'000;
    for (std::size_t bits : {2, 4}) {
        const quantize compressor{.bits = bits, .bucket = 50};
        channel<T, quantize> one{compressor, n};
        auto values = normals<T>(n, 8);
        // Small ones too: a rule that rounds to nearest or at the wrong odds is far off for them.
        for (std::size_t i = 0; i < n; i += 3) values[i] *= T{0.01F};
        std::vector<double> mean(n), square(n), step(n);
        for (std::uint32_t draw = 0; draw < draws; ++draw) {
            const auto message = one.encode(values, {77, core::purpose::rounding, 0, draw});
            const auto decoded = one.decode(message);
            for (std::size_t i = 0; i < n; ++i) {
                const double error = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
                mean[i] += error / draws;
                square[i] += error * error / draws;
                step[i] = static_cast<double>(step_at<T>(message, compressor, i));
            }
        }
        double rounding_to_nearest = 0;
        for (std::size_t i = 0; i < n; ++i) {
            // One error is step (B - f) with B of Bernoulli(f): mean 0, variance step^2 f (1 - f), fourth moment at
            // most step^4 f (1 - f).
            const double x = std::abs(static_cast<double>(values[i])) / step[i];
            const double fraction = x - std::floor(x);
            const double variance = step[i] * step[i] * fraction * (1 - fraction);
            // Five standard deviations and the error of one more or less: below 1e-6 for each of the 812 comparisons of
            // means.
            const double bound = 5 * std::sqrt(variance / draws) + 5 * step[i] / draws;
            INFO("element " << i << " at " << x << " steps");
            CHECK(std::abs(mean[i]) <= bound);
            CHECK(std::abs(square[i] - variance) <=
                  5 * step[i] * step[i] * std::sqrt(fraction * (1 - fraction) / draws) + 5 * step[i] * step[i] / draws);
            rounding_to_nearest = std::max(rounding_to_nearest, step[i] * std::min(fraction, 1 - fraction) / bound);
        }
        // The bound has teeth: rounding to nearest would miss it by far.
        CHECK(rounding_to_nearest > 10);
    }
}

TEMPLATE_TEST_CASE("compress/quantize: half i of the stream decides element i, and a word more where it cannot",
                   "[compress]", float, double) {
    using T = TestType;
    const core::random_stream random{3, core::purpose::rounding, 4, 5};
    const std::size_t n = 300'007;
    const auto values = normals<T>(n, 6);
    for (const std::size_t bucket : {7, 64, 512}) {
        const quantize compressor{.bits = 4, .bucket = bucket};
        channel<T, quantize> one{compressor, n};
        const auto message = one.encode(values, random);
        const auto decoded = one.decode(message);
        std::size_t open = 0, different = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const T step = step_at<T>(message, compressor, i);
            const T x = std::abs(values[i]) / step;
            const auto chance = static_cast<std::uint32_t>(std::ldexp(x - std::floor(x), 31));
            const std::uint32_t word = random.word(i / 2), half = i % 2 == 0 ? word & 0xFFFFU : word >> 16;
            const std::uint32_t rest = random.word((std::uint64_t{1} << 48) + i) >> 17;
            open += half == chance >> 15 ? 1 : 0;
            different += std::abs(decoded[i]) != (std::floor(x) + ((half << 15 | rest) < chance ? T{1} : T{0})) * step;
        }
        CHECK(different == 0);
        // In 300,007 elements 4.6 of 1 in 65,536: none with a probability of 1 %, but these are always the same.
        CHECK(open > 0);
        CHECK(one.decode(one.encode(values, random)) == decoded);
        CHECK(one.decode(one.encode(values, {3, core::purpose::rounding, 4, 6})) != decoded);
    }
}

TEST_CASE("compress/quantize: a chance far below one in 65,536 is kept", "[compress]") {
    // A bucket has one number of 7 steps, and others of 2^-20 of a step: what they add up to in many messages is right.
    constexpr std::size_t n = 4096;
    constexpr std::uint32_t draws = 4096;
    std::vector<float> values(n, std::ldexp(1.0F, -20));
    for (std::size_t i = 0; i < n; i += 512) values[i] = 7;
    channel<float, quantize> one{{.bits = 4, .bucket = 512}, n};
    std::size_t ups = 0;
    for (std::uint32_t draw = 0; draw < draws; ++draw) {
        const auto decoded = one.decode(one.encode(values, {7, core::purpose::rounding, 0, draw}));
        for (const float value : decoded) ups += value == 1 ? 1 : 0;
    }
    // 16 expected, with a deviation of 4.
    CHECK(ups >= 4);
    CHECK(ups <= 32);
}

TEMPLATE_TEST_CASE("compress/quantize: rounds to nearest if asked to, whatever the stream", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>()) {
        const quantize compressor{.bits = 3, .bucket = 100, .stochastic = false};
        channel<T, quantize> one{compressor, n};
        const auto values = normals<T>(n, 6);
        const auto message = one.encode(values);
        const auto decoded = one.decode(message);
        for (std::size_t i = 0; i < n; ++i)
            REQUIRE(std::abs(static_cast<double>(decoded[i]) - static_cast<double>(values[i])) <=
                    static_cast<double>(step_at<T>(message, compressor, i)) * (0.5 + 1e-6));
        CHECK(one.decode(one.encode(values, {9, core::purpose::rounding})) == decoded);
    }
}

TEMPLATE_TEST_CASE("compress/quantize: adds to what is there, scaled", "[compress]", float, double) {
    using T = TestType;
    const quantize compressor{.bits = 5, .bucket = 100};
    channel<T, quantize> one{compressor, 700};
    const auto message = one.encode(normals<T>(700, 1));
    const auto decoded = one.decode(message);
    auto sum = normals<T>(700, 2);
    const auto before = sum;
    compressor.decode_add(message, T{0.3F}, std::span<T>{sum});
    for (std::size_t i = 0; i < 700; ++i) REQUIRE(sum[i] == std::fma(T{0.3F}, decoded[i], before[i]));
}

TEMPLATE_TEST_CASE("compress/quantize: zeros, the smallest and the largest numbers", "[compress]", float, double) {
    using T = TestType;
    using limits = std::numeric_limits<T>;
    channel<T, quantize> one{quantize{.bits = 8, .bucket = 4}, 4};
    CHECK(one.decode(one.encode(std::vector<T>(4))) == std::vector<T>(4));

    for (T tiny : {limits::denorm_min(), limits::min() / 2, limits::min(), limits::min() * 100}) {
        const std::vector<T> values{tiny, T{0}, -tiny, tiny / 2};
        const auto message = one.encode(values);
        const auto decoded = one.decode(message);
        const T step = step_at<T>(message, one.compressor, 0);
        CHECK(step >= limits::min());
        for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(decoded[i] - values[i]) < step);
        CHECK(decoded[1] == 0);
    }

    const T high = std::ldexp(T{1}, limits::max_exponent - 2);
    const std::vector<T> below(4, std::nextafter(high, T{0}));
    for (T value : one.decode(one.encode(below))) CHECK(value == Approx(below[0]).epsilon(1e-4));
    for (T value : one.decode(one.encode(std::vector<T>{T{1}, high, T{1}, T{1}}))) CHECK(std::isnan(value));
}

TEMPLATE_TEST_CASE("compress/quantize: a number that is not finite makes its bucket NaN, and no other", "[compress]",
                   float, double) {
    using T = TestType;
    constexpr std::size_t n = 47;
    for (T bad :
         {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()})
        for (std::size_t at = 0; at < n; ++at) {
            channel<T, quantize> one{quantize{.bits = 4, .bucket = 10}, n};
            auto values = normals<T>(n, 5);
            values[at] = bad;
            auto snapped = values;
            one.compressor.snap(std::span<T>{snapped});
            REQUIRE(!std::isfinite(snapped[at]));
            const auto decoded = one.decode(one.encode(values));
            for (std::size_t i = 0; i < n; ++i) REQUIRE(std::isnan(decoded[i]) == (i / 10 == at / 10));
        }
}

TEMPLATE_TEST_CASE("compress/quantize: snap moves a value by a last bit of its bucket's largest", "[compress]", float,
                   double) {
    using T = TestType;
    for (std::size_t n : sizes<T>())
        for (std::size_t bucket : {1, 7, 512}) {
            const auto values = normals<T>(n, 12, 12);
            auto snapped = values;
            quantize{.bits = 4, .bucket = bucket}.snap(std::span<T>{snapped});
            for (std::size_t i = 0; i < n; ++i) {
                const std::size_t first = i / bucket * bucket;
                const T most = largest(std::span<const T>{values}.subspan(first, std::min(bucket, n - first)));
                REQUIRE(std::abs(static_cast<long double>(snapped[i]) - static_cast<long double>(values[i])) <=
                        static_cast<long double>(most) * std::ldexp(1.0L, 1 - std::numeric_limits<T>::digits));
            }
            auto again = snapped;
            quantize{.bits = 4, .bucket = bucket}.snap(std::span<T>{again});
            CHECK(again == snapped);
        }
}

TEST_CASE("compress/quantize: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(quantize{}.check());
    CHECK_NOTHROW(quantize{.bits = 2, .bucket = 1}.check());
    CHECK_NOTHROW(quantize{.bits = 8}.check());
    for (std::size_t bits : {0, 1, 9, 32}) CHECK_THROWS_AS(quantize{.bits = bits}.check(), core::error);
    CHECK_THROWS_WITH(quantize{.bits = 9}.check(),
                      "lockstep: quantize has bits = 9, outside 2 .. 8; take 2 bits for the levels -1, 0, 1, or 4 or 8 "
                      "for less noise");
    CHECK_THROWS_WITH((quantize{.bits = 4, .bucket = 0}.check()),
                      "lockstep: quantize has bucket = 0; give the number of values that share a scale, such as 512");
    CHECK(quantize{}.settings() == "bits=4 bucket=512 stochastic=true");
}

TEMPLATE_TEST_CASE("compress/quantize: a bucket above the length of the vector is one bucket, however large",
                   "[compress]", float, double) {
    using T = TestType;
    for (const std::size_t n : {1UL, 255UL, 256UL, 1000UL}) {
        const auto values = normals<T>(n, 7);
        channel<T, quantize> whole{quantize{.bucket = n}, n};
        const auto expected = whole.encode(values);
        for (const std::size_t bucket :
             {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() - n + 1}) {
            channel<T, quantize> one{quantize{.bucket = bucket}, n};
            REQUIRE(one.most == whole.most);
            const auto message = one.encode(values);
            REQUIRE(std::equal(message.begin(), message.end(), expected.begin(), expected.end()));
            REQUIRE(one.decode(message) == whole.decode(expected));
        }
    }
}
