// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/error_feedback.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sampled_top_k.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

/// A user's compressor for networks in double alone: the first half of the numbers.
struct halves_of_double {
    static constexpr std::string_view name = "halves_of_double";
    static constexpr std::size_t slot_count = 0;
    [[nodiscard]] std::string settings() const { return {}; }
    template <std::same_as<double> T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return n / 2 * sizeof(T);
    }
    std::size_t encode(const encoding<double>& in) const noexcept {
        const std::size_t bytes = max_bytes<double>(in.values.size());
        if (bytes > 0) std::memcpy(in.message.data(), in.values.data(), bytes);
        return bytes;
    }
    void decode_add(std::span<const std::byte> message, double scale, std::span<double> sum) const noexcept {
        for (std::size_t i = 0; i < message.size() / sizeof(double); ++i) {
            double value = 0;
            std::memcpy(&value, message.data() + i * sizeof(double), sizeof(double));
            sum[i] += scale * value;
        }
    }
};

/// quantize without its snap: decoded + residual is then rounded.
struct never_snaps {
    quantize inner;
    static constexpr std::string_view name = "never_snaps";
    static constexpr std::size_t slot_count = 0;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return inner.max_bytes<T>(n);
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return inner.encode(in);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        inner.decode_add(message, scale, sum);
    }
};

/// As a user would write one, with state and scratch: signs at the mean magnitude, and a slot that counts messages.
struct mean_sign {
    static constexpr std::string_view name = "mean_sign";
    static constexpr std::size_t slot_count = 1;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return sizeof(T) + n;
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        return n;
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t n = in.values.size();
        T mean{0};
        for (std::size_t i = 0; i < n; ++i) in.scratch[i] = std::abs(in.values[i]);
        for (std::size_t i = 0; i < n; ++i) mean += in.scratch[i] / static_cast<T>(n);
        std::memcpy(in.message.data(), &mean, sizeof(T));
        for (std::size_t i = 0; i < n; ++i) in.message[sizeof(T) + i] = std::byte{std::signbit(in.values[i])};
        for (T& count : in.state[0]) count += T{1};
        return sizeof(T) + n;
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        T mean;
        std::memcpy(&mean, message.data(), sizeof(T));
        for (std::size_t i = 0; i < sum.size(); ++i)
            sum[i] += scale * (message[sizeof(T) + i] == std::byte{1} ? -mean : mean);
    }
};

struct tally {
    std::size_t inexact = 0;  // elements where sent + residual is not p
    long double drift = 0;    // largest |sum of gradients - sum of sent - residual|, beyond what forming p may round
    bool lengths_and_guards = true;
};

/// 50 steps. p is formed here a second time: gradient + old residual, snapped if the compressor snaps.
template <class T, class Inner>
tally fifty_steps(const Inner& inner, std::size_t n, int spread) {
    tally out;
    channel<T, error_feedback<Inner>> one{error_feedback<Inner>{inner}, n};
    std::vector<long double> gradients(n), sent(n), allowed(n);
    for (std::uint32_t step = 0; step < 50; ++step) {
        one.step = step;
        one.from = {.rows = n, .columns = 7, .window = step % 2};
        const auto gradient = normals<T>(n, 1000 + step, spread);
        std::vector<T> p(one.slots.begin(), one.slots.begin() + static_cast<std::ptrdiff_t>(n));
        T largest{0};
        for (std::size_t i = 0; i < n; ++i) {
            p[i] = gradient[i] + p[i];
            largest = std::max(largest, std::abs(p[i]));
        }
        if constexpr (requires { inner.snap(std::span<T>{p}); }) inner.snap(std::span<T>{p});

        const auto message = one.encode(gradient, {5, core::purpose::rounding, 0, step});
        out.lengths_and_guards = out.lengths_and_guards && message.size() <= one.most && one.guard_holds();
        const auto decoded = one.decode(message);
        for (std::size_t i = 0; i < n; ++i) {
            const T residual = one.slots[i];
            T whole = p[i];
            // Snapped inside: to a number within a rounding of p that only the compressor knows.
            if constexpr (requires { inner.encode_snapped(encoding<T>{}, std::span<T>{}); }) {
                whole = decoded[i] + residual;
                if (std::abs(whole - p[i]) > largest * std::numeric_limits<T>::epsilon()) ++out.inexact;
            }
            if (!is_exact_sum(decoded[i], residual, whole)) ++out.inexact;
            gradients[i] += static_cast<long double>(gradient[i]);
            sent[i] += static_cast<long double>(decoded[i]);
            allowed[i] +=
                static_cast<long double>(largest) * static_cast<long double>(std::numeric_limits<T>::epsilon()) * 1.5L;
            out.drift =
                std::max(out.drift, std::abs(gradients[i] - sent[i] - static_cast<long double>(residual)) - allowed[i]);
        }
    }
    return out;
}

template <class T, class Inner>
void loses_nothing(const Inner& inner) {
    for (std::size_t n : {1, 7, 31, 257, 1009})
        for (int spread : {0, 6, 20}) {
            const auto result = fifty_steps<T>(inner, n, spread);
            INFO(Inner::name << " " << inner.settings() << ", " << n << " values over 2^+-" << spread);
            CHECK(result.inexact == 0);
            CHECK(result.drift <= 0);
            CHECK(result.lengths_and_guards);
        }
}

}  // namespace

TEMPLATE_TEST_CASE("compress/error_feedback: sent + residual = gradient + old residual, exactly", "[compress]", float,
                   double) {
    loses_nothing<TestType>(none{});
    loses_nothing<TestType>(top_k{.ratio = 0.01});
    loses_nothing<TestType>(top_k{.ratio = 0.3});
    for (std::size_t bits = 2; bits <= 8; ++bits) loses_nothing<TestType>(quantize{.bits = bits, .bucket = 512});
    loses_nothing<TestType>(quantize{.bits = 2, .bucket = 512, .stochastic = false});
    loses_nothing<TestType>(quantize{.bits = 4, .bucket = 1});
    loses_nothing<TestType>(quantize{.bits = 3, .bucket = 50});
}

TEMPLATE_TEST_CASE("compress/error_feedback: nothing is lost around sparsifiers and combinators", "[compress]", float,
                   double) {
    using T = TestType;
    loses_nothing<T>(threshold{.value = 0.5, .most_share = 0.2});
    loses_nothing<T>(sampled_top_k{.ratio = 0.05});
    loses_nothing<T>(gaussian_top_k{.ratio = 0.05});
    const auto both = chain{top_k{.ratio = 0.1}, quantize{.bits = 4, .bucket = 64}};
    loses_nothing<T>(both);
    loses_nothing<T>(by_layer{both, top_k{.ratio = 0.3}, none{}});
    loses_nothing<T>(warm_up<top_k>{.inner = {.ratio = 0.01}, .each = 5, .start = 3});
    loses_nothing<T>(any{both});
    loses_nothing<T>(any{quantize{.bits = 3, .bucket = 50}});
}

TEMPLATE_TEST_CASE("compress/error_feedback: without snap the split is rounded", "[compress]", float, double) {
    CHECK(fifty_steps<TestType>(never_snaps{}, 1009, 6).inexact > 0);
}

TEMPLATE_TEST_CASE("compress/error_feedback: nothing is lost near the ends of the number range either", "[compress]",
                   float, double) {
    using T = TestType;
    using limits = std::numeric_limits<T>;
    for (T size : {limits::denorm_min() * 64, limits::min(), limits::min() * std::ldexp(T{1}, 20),
                   std::ldexp(T{1}, limits::max_exponent - 8)}) {
        const quantize inner{.bits = 4, .bucket = 64};
        channel<T, error_feedback<quantize>> one{error_feedback<quantize>{inner}, 257};
        for (std::uint32_t step = 0; step < 5; ++step) {
            auto gradient = normals<T>(257, 40 + step);
            for (T& value : gradient) value *= size;
            std::vector<T> p = one.slots;
            for (std::size_t i = 0; i < p.size(); ++i) p[i] = gradient[i] + p[i];
            inner.snap(std::span<T>{p});
            const auto decoded = one.decode(one.encode(gradient, {5, core::purpose::rounding, 0, step}));
            for (std::size_t i = 0; i < p.size(); ++i) REQUIRE(is_exact_sum(decoded[i], one.slots[i], p[i]));
        }
    }
}

TEMPLATE_TEST_CASE("compress/error_feedback: what top_k held back comes later", "[compress]", float, double) {
    using T = TestType;
    channel<T, error_feedback<top_k>> one{error_feedback{top_k{.ratio = 0.25}}, 4};
    const std::vector<T> gradient{T{8}, T{4}, T{2}, T{0}};
    CHECK(one.decode(one.encode(gradient)) == std::vector<T>{T{8}, T{0}, T{0}, T{0}});
    CHECK(one.slots == std::vector<T>{T{0}, T{4}, T{2}, T{0}});
    CHECK(one.decode(one.encode(gradient)) == std::vector<T>{T{8}, T{0}, T{0}, T{0}});
    CHECK(one.decode(one.encode(gradient)) == std::vector<T>{T{0}, T{12}, T{0}, T{0}});
    CHECK(one.slots == std::vector<T>{T{8}, T{0}, T{6}, T{0}});
}

TEMPLATE_TEST_CASE("compress/error_feedback: the residual of quantize is bounded where check says so", "[compress]",
                   float, double) {
    using T = TestType;
    // Largest residual in 400 steps with gradients that do not exceed 1.
    const auto largest_residual = [](const quantize& inner) {
        constexpr std::size_t n = 257;
        channel<T, error_feedback<quantize>> one{error_feedback<quantize>{inner}, n};
        T largest{0};
        for (std::uint32_t step = 0; step < 400; ++step) {
            auto gradient = normals<T>(n, step, 3);
            for (T& value : gradient) value = std::clamp(value, T{-1}, T{1});
            one.encode(gradient, {5, core::purpose::rounding, 0, step});
            for (T value : one.slots) largest = std::max(largest, std::abs(value));
        }
        return largest;
    };
    const T rounding = 1 + 1000 * std::numeric_limits<T>::epsilon();
    for (std::size_t bits = 3; bits <= 8; ++bits) {
        const auto s = static_cast<T>((1 << (bits - 1)) - 1);
        CHECK(largest_residual({.bits = bits, .bucket = 64}) <= rounding / (s - 1));
    }
    for (std::size_t bits = 2; bits <= 8; ++bits) {
        const auto s = static_cast<T>((1 << (bits - 1)) - 1);
        CHECK(largest_residual({.bits = bits, .bucket = 64, .stochastic = false}) <= rounding / (2 * s - 1));
    }
    CHECK(largest_residual({.bits = 2, .bucket = 64}) > 4);

    CHECK_NOTHROW(error_feedback{quantize{.bits = 3}}.check());
    CHECK_NOTHROW(error_feedback{quantize{.bits = 2, .stochastic = false}}.check());
    CHECK_NOTHROW(quantize{.bits = 2}.check());
    CHECK_THROWS_WITH(
        error_feedback{quantize{.bits = 2}}.check(),
        "lockstep: error_feedback around quantize with bits = 2 and stochastic rounding leaves residuals of about 5.7 "
        "times the gradients "
        "for bucket = 512; take .stochastic = false, or 3 bits or more, or quantize without error_feedback");
}

TEMPLATE_TEST_CASE("compress/error_feedback: around a user's compressor with a slot and scratch", "[compress]", float,
                   double) {
    using T = TestType;
    using wrapped = error_feedback<mean_sign>;
    static_assert(Compressor<wrapped> && wrapped::slot_count == 2);
    CHECK(compress::scratch_size<T>(wrapped{}, 31) == 31);
    CHECK(compress::scratch_size<T>(error_feedback{none{}}, 31) == 0);
    channel<T, wrapped> one{wrapped{}, 31};
    for (std::uint64_t step = 0; step < 3; ++step) {
        const auto gradient = normals<T>(31, step);
        const std::vector<T> before = one.slots;
        const auto decoded = one.decode(one.encode(gradient));
        for (std::size_t i = 0; i < 31; ++i) {
            const T p = gradient[i] + before[i];
            CHECK(one.slots[i] == p - decoded[i]);
            CHECK(one.slots[31 + i] == static_cast<T>(step + 1));
        }
    }
}

TEMPLATE_TEST_CASE("compress/error_feedback: a number that is not finite is sent and stays visible", "[compress]",
                   float, double) {
    using T = TestType;
    const auto check = [](const auto& compressor) {
        for (T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
            channel<T, std::remove_cvref_t<decltype(compressor)>> one{compressor, 100};
            auto gradient = normals<T>(100, 1);
            gradient[61] = bad;
            CHECK(!std::isfinite(one.decode(one.encode(gradient))[61]));
            CHECK(!std::isfinite(one.slots[61]));
        }
    };
    check(error_feedback{none{}});
    check(error_feedback{top_k{.ratio = 0.01}});
    check(error_feedback{quantize{}});
}

TEST_CASE("compress/error_feedback: traits, bytes, settings and check are the inner one's", "[compress]") {
    static_assert(!traits_of<error_feedback<none>>.dense_vectors && traits_of<error_feedback<top_k>>.dense_vectors);
    static_assert(error_feedback<none>::slot_count == 1);
    CHECK(error_feedback{top_k{.ratio = 0.01}}.max_bytes<float>(1000) == 80);
    CHECK(error_feedback{quantize{}}.max_bytes<float>(1024) == 512 + 8);
    CHECK(error_feedback{top_k{.ratio = 0.01}}.settings() == "inner=top_k(ratio=0.01)");
    CHECK_NOTHROW(error_feedback{none{}}.check());
    CHECK_THROWS_WITH(error_feedback{top_k{.ratio = -1}}.check(), Catch::Contains("top_k has ratio = -1"));
}

TEST_CASE("compress/error_feedback: a second one inside is refused, wherever it stands", "[compress]") {
    const auto refused = [](const auto& one) {
        CHECK_THROWS_WITH(one.check(),
                          Catch::Contains("error_feedback inside another error_feedback, around top_k") &&
                              Catch::EndsWith("two residuals of one gradient grow without end; leave one of them out"));
    };
    const error_feedback inner{top_k{}};
    refused(error_feedback<error_feedback<top_k>>{inner});
    refused(error_feedback{by_layer{inner, quantize{.bits = 8}}});
    refused(error_feedback{by_layer{quantize{.bits = 8}, inner}});
    refused(error_feedback{warm_up<error_feedback<top_k>>{.inner = inner, .start = 3}});
    refused(error_feedback{any{inner}});
    refused(error_feedback{any{by_layer{any{inner}, top_k{}}}});
    refused(any{error_feedback{any{inner}}});
    refused(error_feedback{measured{inner, nullptr}});
    refused(error_feedback{sparse_sum{inner}});
    CHECK_NOTHROW(error_feedback{by_layer{top_k{}, quantize{.bits = 8}}}.check());
    CHECK_NOTHROW(two_sided{error_feedback{top_k{}}}.check());
}

TEST_CASE("compress/error_feedback: around a compressor for double alone", "[compress]") {
    constexpr error_feedback feedback{halves_of_double{}};
    using type = std::remove_const_t<decltype(feedback)>;
    static_assert(Compressor<type, double> && !Compressor<type, float>);
    const std::vector<double> g{1, 2, 3, 4, 5};
    std::vector<double> residual(g.size()), sum(g.size());
    std::vector<std::byte> message(feedback.max_bytes<double>(g.size()));
    for (int step = 1; step <= 2; ++step) {
        const std::size_t bytes =
            feedback.encode(encoding<double>{g, message, {residual.data(), 1, g.size(), g.size()}, {}});
        CHECK(bytes == 2 * sizeof(double));
        feedback.decode_add(std::span<const std::byte>{message}.first(bytes), 1.0, std::span{sum});
        CHECK(sum == std::vector<double>{1.0 * step, 2.0 * step, 0, 0, 0});
        CHECK(residual == std::vector<double>{0, 0, 3.0 * step, 4.0 * step, 5.0 * step});
    }
}
