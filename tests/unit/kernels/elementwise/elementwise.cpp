// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/elementwise/elementwise.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/common.hpp"

using namespace kernel_test;

namespace {

template <class T>
std::span<const T> in(const array<T>& from) {
    return from;
}
template <class T>
std::span<T> out(array<T>& to) {
    return to;
}

const std::size_t sizes[] = {0, 1, 3, 4, 5, 7, 8, 9, 16, 17, 31, 37, 100};

}  // namespace

TEMPLATE_TEST_CASE("kernels/elementwise: against their definitions", "[kernels]", float, double) {
    for (const std::size_t n : sizes) {
        auto x = uniform<TestType>(n, 1);
        if (n > 2) x[2] = 0;
        const auto dy = uniform<TestType>(n, 2);
        auto relu = unwritten<TestType>(n), relu_gradient = relu, tanh = relu, tanh_gradient = relu, combined = dy,
             sum = dy, scaled = dy;
        kernels::relu_forward<TestType>(in(x), out(relu));
        kernels::relu_backward<TestType>(in(relu), in(dy), out(relu_gradient));
        kernels::tanh_forward<TestType>(in(x), out(tanh));
        kernels::tanh_backward<TestType>(in(tanh), in(dy), out(tanh_gradient));
        kernels::axpy<TestType>(TestType{3}, in(x), out(combined));
        kernels::add<TestType>(in(x), out(sum));
        kernels::scale<TestType>(TestType{3}, out(scaled));
        const double unit = static_cast<double>(std::numeric_limits<TestType>::epsilon());
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(relu[i] == (x[i] > 0 ? x[i] : 0));
            REQUIRE(relu_gradient[i] == (x[i] > 0 ? dy[i] : 0));
            const double exact = std::tanh(static_cast<double>(x[i]));
            REQUIRE(std::abs(static_cast<double>(tanh[i]) - exact) <= 4 * unit);
            REQUIRE(std::abs(static_cast<double>(tanh_gradient[i]) -
                             static_cast<double>(dy[i]) * (1 - exact * exact)) <= 6 * unit);
            REQUIRE(std::abs(static_cast<double>(combined[i]) -
                             (3.0 * static_cast<double>(x[i]) + static_cast<double>(dy[i]))) <= 2 * unit);
            REQUIRE(sum[i] == dy[i] + x[i]);
            REQUIRE(scaled[i] == 3 * dy[i]);
        }
        auto in_place = x;
        kernels::relu_forward<TestType>(in(in_place), out(in_place));
        REQUIRE(same_bits(in_place, relu));
    }
}

TEMPLATE_TEST_CASE("kernels/elementwise: an element has the same bits wherever it lies", "[kernels]", float, double) {
    const auto x = uniform<TestType>(45, 1);
    using function = void (*)(std::span<const TestType>, std::span<TestType>);
    for (const function f : {function{&kernels::tanh_forward<TestType>}, function{&kernels::sigmoid_forward<TestType>},
                             function{&kernels::gelu_forward<TestType>}}) {
        auto all = unwritten<TestType>(45);
        f(in(x), out(all));
        for (std::size_t first = 0; first < 45; ++first)
            for (std::size_t count : {std::size_t{1}, std::size_t{5}, 45 - first}) {
                count = std::min(count, 45 - first);
                auto part = unwritten<TestType>(count);
                f(in(x).subspan(first, count), out(part));
                REQUIRE(std::memcmp(part.data(), all.data() + first, count * sizeof(TestType)) == 0);
            }
    }
}

TEMPLATE_TEST_CASE("kernels/elementwise: sigmoid and gelu, forward and backward", "[kernels]", float, double) {
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    constexpr double root = 0.79788456080286535588;  // sqrt(2 / pi)
    for (const std::size_t n : sizes) {
        auto x = uniform<TestType>(n, 1);
        for (auto& one : x) one *= 24;
        const auto dy = uniform<TestType>(n, 2);
        auto sigmoid = unwritten<TestType>(n), sigmoid_gradient = sigmoid, gelu = sigmoid, gelu_gradient = sigmoid;
        kernels::sigmoid_forward<TestType>(in(x), out(sigmoid));
        kernels::sigmoid_backward<TestType>(in(sigmoid), in(dy), out(sigmoid_gradient));
        kernels::gelu_forward<TestType>(in(x), out(gelu));
        kernels::gelu_backward<TestType>(in(x), in(dy), out(gelu_gradient));
        for (std::size_t i = 0; i < n; ++i) {
            const auto at = static_cast<double>(x[i]), gradient = static_cast<double>(dy[i]);
            const double s = 1 / (1 + std::exp(-at));
            // The exponential errs by two units in the last place; the sum and the quotient by half of one each.
            REQUIRE(std::abs(static_cast<double>(sigmoid[i]) - s) <= 4 * eps * s);
            REQUIRE(std::abs(static_cast<double>(sigmoid_gradient[i]) - gradient * s * (1 - s)) <= 0.5 * 6 * eps);
            // An error of three units of 2 u moves the exponential by 2 u times as many; where |2 u| is large the gate
            // is flat or its product small.
            const double twice = 2 * root * (at + 0.044715 * at * at * at), gate = 1 / (1 + std::exp(-twice));
            const double moved = 4 + 3 * std::abs(twice) * std::min(gate, 1 - gate) / std::max(gate, 1e-300);
            REQUIRE(std::abs(static_cast<double>(gelu[i]) - at * gate) <=
                    (moved + 1) * eps * std::abs(at) * gate + 1e-37);
            const double inner = 2 * root * (1 + 3 * 0.044715 * at * at);
            const double want = gate + at * gate * (1 - gate) * inner;
            REQUIRE(std::abs(static_cast<double>(gelu_gradient[i]) - gradient * want) <=
                    0.5 * (moved + 8) * eps * (gate + std::abs(at * inner) * gate * (1 - gate) + eps));
            // The form with tanh, by its definition.
            REQUIRE(std::abs(at * gate - 0.5 * at * (1 + std::tanh(twice / 2))) <= 1e-15 * std::abs(at));
        }
        auto in_place = x;
        kernels::sigmoid_forward<TestType>(in(in_place), out(in_place));
        REQUIRE(same_bits(in_place, sigmoid));
        in_place = dy;
        kernels::gelu_backward<TestType>(in(x), in(in_place), out(in_place));
        REQUIRE(same_bits(in_place, gelu_gradient));
    }
}

TEMPLATE_TEST_CASE("kernels/elementwise: sigmoid and gelu far out", "[kernels]", float, double) {
    constexpr TestType huge = std::numeric_limits<TestType>::max();
    constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
    const array<TestType> x{TestType{1000}, TestType{-1000}, huge, -huge, infinity, TestType{0}};
    const array<TestType> ones(6, TestType{1});
    array<TestType> y(6), gradient(6);
    kernels::sigmoid_forward<TestType>(in(x), out(y));
    CHECK(y == array<TestType>{TestType{1}, TestType{0}, TestType{1}, TestType{0}, TestType{1}, TestType{0.5}});
    kernels::gelu_forward<TestType>(in(x), out(y));
    CHECK(y == array<TestType>{TestType{1000}, TestType{0}, huge, TestType{0}, infinity, TestType{0}});
    kernels::gelu_backward<TestType>(in(x), in(ones), out(gradient));
    CHECK(gradient == array<TestType>{TestType{1}, TestType{0}, TestType{1}, TestType{0}, TestType{1}, TestType{0.5}});
}

TEMPLATE_TEST_CASE("kernels/elementwise: a NaN is never swallowed", "[kernels]", float, double) {
    for (const std::size_t n : {1, 4, 9, 17})
        for (std::size_t at = 0; at < n; ++at) {
            auto x = uniform<TestType>(n, 1);
            const auto dy = uniform<TestType>(n, 2);
            x[at] = std::numeric_limits<TestType>::quiet_NaN();
            array<TestType> relu(n), relu_gradient(n), tanh(n), tanh_gradient(n);
            array<TestType> sigmoid(n), sigmoid_gradient(n), gelu(n), gelu_gradient(n);
            kernels::sigmoid_forward<TestType>(in(x), out(sigmoid));
            kernels::sigmoid_backward<TestType>(in(sigmoid), in(dy), out(sigmoid_gradient));
            kernels::gelu_forward<TestType>(in(x), out(gelu));
            kernels::gelu_backward<TestType>(in(x), in(dy), out(gelu_gradient));
            auto combined = dy;
            kernels::relu_forward<TestType>(in(x), out(relu));
            kernels::relu_backward<TestType>(in(relu), in(dy), out(relu_gradient));
            kernels::tanh_forward<TestType>(in(x), out(tanh));
            kernels::tanh_backward<TestType>(in(tanh), in(dy), out(tanh_gradient));
            kernels::axpy<TestType>(TestType{0}, in(x), out(combined));
            for (const auto* values : {&relu, &relu_gradient, &tanh, &tanh_gradient, &combined, &sigmoid,
                                       &sigmoid_gradient, &gelu, &gelu_gradient})
                for (std::size_t i = 0; i < n; ++i) REQUIRE(std::isnan((*values)[i]) == (i == at));
        }
}

TEMPLATE_TEST_CASE("kernels/elementwise: tanh saturates and keeps signs", "[kernels]", float, double) {
    const array<TestType> x{TestType{50}, TestType{-50}, std::numeric_limits<TestType>::infinity(),
                            -std::numeric_limits<TestType>::infinity(), TestType{0}};
    array<TestType> y(5);
    kernels::tanh_forward<TestType>(in(x), out(y));
    CHECK(y == array<TestType>{TestType{1}, TestType{-1}, TestType{1}, TestType{-1}, TestType{0}});
}

TEMPLATE_TEST_CASE("kernels/elementwise: the first number that is not finite", "[kernels]", float, double) {
    for (const std::size_t n : {0, 1, 7, 8, 31, 32, 33, 64, 100, 131}) {
        auto x = uniform<TestType>(n, 1);
        if (n > 0) x[0] = std::numeric_limits<TestType>::max();
        CHECK(kernels::first_non_finite<TestType>(in(x)) == n);
        for (std::size_t at = n; at-- > 0;) {
            x[at] = at % 3 == 0   ? std::numeric_limits<TestType>::quiet_NaN()
                    : at % 3 == 1 ? std::numeric_limits<TestType>::infinity()
                                  : -std::numeric_limits<TestType>::infinity();
            REQUIRE(kernels::first_non_finite<TestType>(in(x)) == at);
        }
    }
}

TEMPLATE_TEST_CASE("kernels/elementwise: the first number that is not finite is found by any number of threads",
                   "[kernels]", float, double) {
    const std::size_t n = 100003;
    auto x = uniform<TestType>(n, 1);
    for (const int threads : thread_counts()) {
        CHECK(kernels::first_non_finite<TestType>(in(x), {threads}) == n);
        for (const std::size_t at : {n - 1, n - 2, n / 2, n / 3, std::size_t{1}, std::size_t{0}}) {
            auto y = x;
            y[at] = y[std::min(n - 1, at + 60000)] = std::numeric_limits<TestType>::quiet_NaN();
            CHECK(kernels::first_non_finite<TestType>(in(y), {threads}) == at);
        }
    }
}

TEMPLATE_TEST_CASE("kernels/elementwise: results far larger than the caches have the bits of those in place",
                   "[kernels]", float, double) {
    const std::size_t n = rows_beyond_caches<TestType>(1);
    const auto x = repeated<TestType>(n, 1), dy = repeated<TestType>(n, 2);
    using forward = void (*)(std::span<const TestType>, std::span<TestType>);
    for (const forward f : {&kernels::relu_forward<TestType>, &kernels::tanh_forward<TestType>,
                            &kernels::sigmoid_forward<TestType>, &kernels::gelu_forward<TestType>}) {
        auto apart = unwritten<TestType>(n), place = x;
        f(in(x), out(apart));
        f(in(place), out(place));
        REQUIRE(same_bits(apart, place));
        // No whole lines.
        f(in(x).subspan(2), out(apart).subspan(1, n - 2));
        REQUIRE(std::memcmp(apart.data() + 1, place.data() + 2, (n - 2) * sizeof(TestType)) == 0);
    }
    using backward = void (*)(std::span<const TestType>, std::span<const TestType>, std::span<TestType>);
    for (const backward f : {&kernels::relu_backward<TestType>, &kernels::tanh_backward<TestType>,
                             &kernels::sigmoid_backward<TestType>, &kernels::gelu_backward<TestType>}) {
        auto apart = unwritten<TestType>(n), place = dy;
        f(in(x), in(dy), out(apart));
        f(in(x), in(place), out(place));
        REQUIRE(same_bits(apart, place));
    }
}
