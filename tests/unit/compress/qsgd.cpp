// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/qsgd.hpp"

#include <algorithm>
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

namespace {

constexpr auto elias = level_coding::elias;
constexpr auto largest = bucket_norm::largest;
const core::random_stream words{42, core::purpose::rounding, 5, 9};

template <class T>
T step_at(std::span<const std::byte> message, const qsgd& compressor, std::size_t i) {
    T step;
    std::memcpy(&step, message.data() + i / compressor.bucket * sizeof(T), sizeof(T));
    return step;
}

}  // namespace

TEST_CASE("compress/qsgd: steps, levels and codes of Elias are those of the formulas", "[compress]") {
    for (const auto& expected : reference::of_numbers) {
        const std::size_t n = expected.n;
        std::vector<double> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = reference_number<double>(i);
        qsgd compressor{.levels = expected.levels,
                        .bucket = expected.bucket,
                        .norm = expected.euclidean ? bucket_norm::l2 : largest};
        channel<double, qsgd> packed{compressor, n};
        const auto message = packed.encode(values, words);
        const auto decoded = packed.decode(message);
        for (std::size_t i = 0; i < n; ++i) {
            const auto step = step_at<double>(message, compressor, i);
            CHECK(step == Approx(expected.steps[i / expected.bucket]).epsilon(1e-14));
            CHECK(decoded[i] == step * expected.signed_levels[i]);
        }
        compressor.coding = elias;
        channel<double, qsgd> coded{compressor, n};
        const auto codes = coded.encode(values, words);
        const std::size_t steps = expected.steps.size() * sizeof(double);
        REQUIRE(codes.size() == steps + expected.elias.size());
        for (std::size_t i = 0; i < expected.elias.size(); ++i)
            CHECK(std::to_integer<int>(codes[steps + i]) == expected.elias[i]);
        CHECK(coded.decode(codes) == decoded);
    }
}

TEMPLATE_TEST_CASE("compress/qsgd: messages have the length of the formula, and Elias at most that", "[compress]",
                   float, double) {
    using T = TestType;
    std::size_t shorter = 0;
    for (const std::size_t n : sizes<T>())
        for (const std::size_t levels : {1, 2, 3, 7, 8, 127})
            for (const std::size_t bucket : {1, 7, 100, 512, 5000})
                for (const auto norm : {bucket_norm::l2, largest}) {
                    const auto values = normals<T>(n, 3);
                    channel<T, qsgd> packed{{.levels = levels, .bucket = bucket, .norm = norm}, n};
                    const auto message = packed.encode(values);
                    const auto bits =
                        static_cast<std::size_t>(std::ceil(std::log2(2 * static_cast<double>(levels) + 1)));
                    const std::size_t buckets = (n + bucket - 1) / bucket;
                    REQUIRE(message.size() == (n * bits + 7) / 8 + sizeof(T) * buckets);
                    REQUIRE(packed.most == message.size());
                    REQUIRE(packed.guard_holds());
                    channel<T, qsgd> coded{{.levels = levels, .bucket = bucket, .norm = norm, .coding = elias}, n};
                    const auto codes = coded.encode(values);
                    REQUIRE(codes.size() <= coded.most);
                    REQUIRE(codes.size() <= message.size() + (2 * buckets + 7) / 8 + 1);
                    REQUIRE(coded.guard_holds());
                    REQUIRE(coded.decode(codes) == packed.decode(message));
                    shorter += codes.size() < message.size() ? 1 : 0;
                }
    CHECK(shorter > 50);
    // The paper has 2.8 n + 32 bits for s = sqrt(n), of which normal deviates keep within 3 %; and its sparse regime.
    constexpr std::size_t n = 1024;
    channel<T, qsgd> root{{.levels = 32, .bucket = n, .coding = elias}, n};
    const auto bits_of = [](std::span<const std::byte> message) { return 8 * static_cast<double>(message.size()); };
    CHECK(bits_of(root.encode(normals<T>(n, 4))) <= 1.03 * 2.8 * n + 8 * sizeof(T) + 8);
    channel<T, qsgd> one{{.levels = 1, .bucket = n, .coding = elias}, n};
    CHECK(bits_of(one.encode(normals<T>(n, 4))) <= std::sqrt(n) * (std::log2(n) + 4) + 8 * sizeof(T));
}

TEMPLATE_TEST_CASE("compress/qsgd: the mean of many messages is the vector, and their variance within the bound",
                   "[compress]", float, double) {
    using T = TestType;
    constexpr std::size_t n = 203;
    constexpr std::uint32_t draws = 10'000;
    for (const auto& compressor : {qsgd{.levels = 1, .bucket = 64}, qsgd{.levels = 7, .bucket = 50},
                                   qsgd{.levels = 5, .bucket = 203, .norm = largest}}) {
        channel<T, qsgd> one{compressor, n};
        const auto values = normals<T>(n, 8);
        std::vector<double> mean(n), step(n);
        double errors = 0;
        for (std::uint32_t draw = 0; draw < draws; ++draw) {
            const auto message = one.encode(values, {77, core::purpose::rounding, 0, draw});
            const auto decoded = one.decode(message);
            for (std::size_t i = 0; i < n; ++i) {
                const double error = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
                mean[i] += error / draws;
                errors += error * error / draws;
                step[i] = static_cast<double>(step_at<T>(message, compressor, i));
            }
        }
        double inverted = 0, variance_in_all = 0, bound_in_all = 0;
        for (std::size_t i = 0; i < n; ++i) {
            // One error is step (B - f) with B of Bernoulli(f): five standard deviations and one error more or less.
            const double x = std::abs(static_cast<double>(values[i])) / step[i], f = x - std::floor(x);
            const double bound = 5 * step[i] * std::sqrt(f * (1 - f) / draws) + 5 * step[i] / draws;
            REQUIRE(std::abs(mean[i]) <= bound);
            // Rounding the other way round, up with probability 1 - f, has the mean error step (1 - 2 f).
            inverted = std::max(inverted, step[i] * std::abs(1 - 2 * f) / bound);
            variance_in_all += step[i] * step[i] * f * (1 - f);
            const double d = std::min<double>(static_cast<double>(compressor.bucket), n);
            const double s = static_cast<double>(compressor.levels);
            bound_in_all += std::min(d / (s * s), std::sqrt(d) / s) * std::pow(static_cast<double>(values[i]), 2);
        }
        CHECK(inverted > 10);
        CHECK(errors == Approx(variance_in_all).epsilon(0.05));
        CHECK(errors <= 1.05 * bound_in_all);
    }
}

TEMPLATE_TEST_CASE("compress/qsgd: with error feedback sent + residual is p, bit for bit", "[compress]", float,
                   double) {
    using T = TestType;
    constexpr std::size_t n = 500;
    for (const auto& compressor : {qsgd{.levels = 7, .bucket = 100, .norm = largest}, qsgd{.levels = 20, .bucket = 100},
                                   qsgd{.levels = 20, .bucket = 100, .coding = elias}}) {
        channel<T, error_feedback<qsgd>> one{{compressor}, n};
        CHECK_NOTHROW(one.compressor.check());
        for (std::uint32_t step = 0; step < 20; ++step) {
            const auto values = normals<T>(n, 20 + step, 3);
            std::vector<T> p(n);
            for (std::size_t i = 0; i < n; ++i) p[i] = values[i] + one.slots[i];
            compressor.snap(std::span<T>{p});
            const auto decoded = one.decode(one.encode(values, {5, core::purpose::rounding, 0, step}));
            for (std::size_t i = 0; i < n; ++i) REQUIRE(is_exact_sum(decoded[i], one.slots[i], p[i]));
        }
    }
}

TEST_CASE("compress/qsgd: a damaged message is decoded within its bytes", "[compress]") {
    constexpr std::size_t n = 300;
    const core::random_stream random{8, core::purpose::user};
    for (const auto& compressor : {qsgd{.levels = 1, .bucket = 100, .coding = elias},
                                   qsgd{.levels = 7, .bucket = 512, .norm = largest, .coding = elias}}) {
        channel<float, qsgd> one{compressor, n};
        const auto message = one.encode(normals<float>(n, 2));
        const std::vector<std::byte> whole(message.begin(), message.end());
        std::vector<float> sum(n);
        for (std::size_t length = 0; length < whole.size(); ++length) {
            const std::vector<std::byte> some(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
            compressor.decode_add(std::span<const std::byte>{some}, 1.0F, std::span{sum});
        }
        const std::size_t steps = (n + compressor.bucket - 1) / compressor.bucket * sizeof(float);
        for (std::uint64_t trial = 0; trial < 2000; ++trial) {
            std::vector<std::byte> other = whole;
            for (std::uint64_t change = 0; change < 4; ++change)
                other[steps + random.below(whole.size() - steps, 8 * trial + change)] =
                    static_cast<std::byte>(random.word(1'000'000 + 8 * trial + change));
            std::fill(sum.begin(), sum.end(), 0.0F);
            compressor.decode_add(std::span<const std::byte>{other}, 1.0F, std::span{sum});
            for (std::size_t i = 0; i < n; ++i) {
                const float most = step_at<float>(other, compressor, i) * static_cast<float>(compressor.levels);
                REQUIRE(std::abs(sum[i]) <= most);
            }
        }
    }
}

TEMPLATE_TEST_CASE("compress/qsgd: zeros, tiny and huge numbers, and what is not finite", "[compress]", float, double) {
    using T = TestType;
    using limits = std::numeric_limits<T>;
    for (const auto coding : {level_coding::packed, elias})
        for (const auto norm : {bucket_norm::l2, largest}) {
            const qsgd compressor{.levels = 7, .bucket = 10, .norm = norm, .coding = coding};
            channel<T, qsgd> none{compressor, 30};
            CHECK(none.decode(none.encode(std::vector<T>(30))) == std::vector<T>(30));
            channel<T, qsgd> one{compressor, 1};
            CHECK(one.decode(one.encode(std::vector<T>{T{-3}}))[0] == Approx(-3));
            for (const T bad : {limits::quiet_NaN(), limits::infinity(), -limits::infinity(), limits::max()}) {
                auto values = normals<T>(30, 5);
                values[14] = bad;
                const auto decoded = none.decode(none.encode(values));
                for (std::size_t i = 0; i < 30; ++i) REQUIRE(std::isnan(decoded[i]) == (i / 10 == 1));
            }
            for (const T size : {limits::denorm_min(), limits::min(), std::ldexp(T{1}, limits::max_exponent - 10)}) {
                const std::vector<T> values(10, -size);
                channel<T, qsgd> ten{compressor, 10};
                const auto message = ten.encode(values);
                const auto decoded = ten.decode(message);
                const T step = step_at<T>(message, compressor, 0);
                for (const T value : decoded) REQUIRE(std::abs(value + size) <= step);
            }
        }
}

TEST_CASE("compress/qsgd: check names the value and the remedy", "[compress]") {
    CHECK_NOTHROW(qsgd{}.check());
    for (const std::size_t levels : {0, 128, 1 << 30}) CHECK_THROWS_AS(qsgd{.levels = levels}.check(), core::error);
    CHECK_THROWS_WITH(qsgd{.levels = 0}.check(),
                      "lockstep: qsgd has levels = 0, outside 1 .. 127; take 7 for 4 bits a number, 1 for the least, "
                      "127 for 8 bits");
    CHECK_THROWS_WITH((qsgd{.bucket = 0}.check()),
                      "lockstep: qsgd has bucket = 0; give the numbers that share a norm, such as 512");
    CHECK_THROWS_AS(error_feedback{qsgd{}}.check(), core::error);
    CHECK_THROWS_AS((error_feedback{qsgd{.levels = 1, .norm = largest}}.check()), core::error);
    CHECK_NOTHROW(error_feedback{qsgd{.norm = largest}}.check());
    CHECK(qsgd{.coding = elias}.settings() == "levels=7 bucket=512 norm=l2 coding=elias");
}

TEST_CASE("compress/elias: the codes of omega, and back", "[compress]") {
    const auto text = [](std::uint32_t k) {
        const auto code = elias_omega(k);
        std::string out;
        for (unsigned i = 0; i < code.length; ++i) out += code.bits >> i & 1U ? '1' : '0';
        return out;
    };
    CHECK(text(1) == "0");
    CHECK(text(2) == "100");
    CHECK(text(3) == "110");
    CHECK(text(4) == "101000");
    CHECK(text(7) == "101110");
    CHECK(text(8) == "1110000");
    CHECK(text(16) == "10100100000");
    CHECK(text(100) == "1011011001000");
    std::vector<std::uint32_t> all{0xffffffffU, 0x80000000U, 65535, 65536};
    for (std::uint32_t k = 1; k < 600; ++k) all.push_back(k);
    std::vector<std::byte> bytes(8 * all.size());
    bit_writer out{bytes.data()};
    for (const std::uint32_t k : all) out.put(elias_omega(k));
    const auto used = static_cast<std::size_t>(out.finish() - bytes.data());
    bit_reader in{std::span<const std::byte>{bytes}.first(used)};
    for (const std::uint32_t k : all) REQUIRE(in.omega() == k);
}
