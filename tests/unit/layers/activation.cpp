// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/activation.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// Rows on both sides of a vector and of a thread's share.
constexpr std::size_t features = 37;

template <class T, class Spec>
problem<T, layer_of<Spec, shape<features>>> wide(std::size_t rows) {
    auto x = uniform<T>(rows * features, 1);
    for (auto& one : x) one *= 12;
    return {.rows = rows, .x = x};
}

}  // namespace

TEMPLATE_TEST_CASE("layers/activation: relu", "[layers]", float, double) {
    for (const std::size_t rows : {0, 1, 3, 300})
        for (const int threads : thread_counts()) {
            auto of = wide<TestType, layers::relu>(rows);
            of.team = {threads};
            if (rows > 0) of.x[5] = 0;
            const auto dy = uniform<TestType>(of.x.size(), 2);
            const auto ran = forward(of);
            const auto dx = backward(of, ran, dy, one_lane(rows)).dx;
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < of.x.size(); ++i) {
                wrong += ran.y[i] != (of.x[i] > 0 ? of.x[i] : TestType{0});
                wrong += dx[i] != (of.x[i] > 0 ? dy[i] : TestType{0});
            }
            CHECK(wrong == 0);
        }
}

TEMPLATE_TEST_CASE("layers/activation: relu keeps NaN and infinity", "[layers]", float, double) {
    auto of = wide<TestType, layers::relu>(1);
    of.x[3] = std::numeric_limits<TestType>::quiet_NaN();
    of.x[36] = std::numeric_limits<TestType>::quiet_NaN();
    of.x[4] = std::numeric_limits<TestType>::infinity();
    of.x[5] = -std::numeric_limits<TestType>::infinity();
    const auto ran = forward(of);
    for (std::size_t i = 0; i < features; ++i) CHECK(std::isnan(ran.y[i]) == (i == 3 || i == 36));
    CHECK(ran.y[4] == std::numeric_limits<TestType>::infinity());
    CHECK(ran.y[5] == 0);
    const auto dx = backward(of, ran, array<TestType>(features, TestType{2}), one_lane(1)).dx;
    CHECK(std::isnan(dx[3]));
    CHECK(dx[4] == 2);
    CHECK(dx[5] == 0);
}

TEMPLATE_TEST_CASE("layers/activation: tanh", "[layers]", float, double) {
    // The vector library promises two units in the last place; a unit is at most eps |y|. The gradient dy (1 - y^2) is
    // rounded three times, and an error of d in y^2 is one of d in the gradient.
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    for (const std::size_t rows : {0, 1, 3, 300})
        for (const int threads : thread_counts()) {
            auto of = wide<TestType, layers::tanh>(rows);
            of.team = {threads};
            const auto dy = uniform<TestType>(of.x.size(), 2);
            const auto ran = forward(of);
            const auto dx = backward(of, ran, dy, one_lane(rows)).dx;
            double worst = 0, worst_gradient = 0;
            for (std::size_t i = 0; i < of.x.size(); ++i) {
                const double y = std::tanh(static_cast<double>(of.x[i]));
                worst = std::max(worst, std::abs(static_cast<double>(ran.y[i]) - y) / std::abs(y));
                const double gradient = static_cast<double>(dy[i]) * (1 - y * y);
                worst_gradient = std::max(worst_gradient, std::abs(static_cast<double>(dx[i]) - gradient));
            }
            CHECK(worst <= 2 * eps);
            CHECK(worst_gradient <= (2 * 2 + 3) * eps * 0.5);
        }
}

TEMPLATE_TEST_CASE("layers/activation: tanh at its ends", "[layers]", float, double) {
    auto of = wide<TestType, layers::tanh>(1);
    of.x[0] = 0;
    of.x[1] = std::numeric_limits<TestType>::infinity();
    of.x[2] = -std::numeric_limits<TestType>::infinity();
    of.x[3] = std::numeric_limits<TestType>::quiet_NaN();
    of.x[4] = 1000;
    of.x[5] = std::numeric_limits<TestType>::min();
    const auto y = forward(of).y;
    CHECK(y[0] == 0);
    CHECK(y[1] == 1);
    CHECK(y[2] == -1);
    CHECK(std::isnan(y[3]));
    CHECK(y[4] == 1);
    CHECK(y[5] == std::numeric_limits<TestType>::min());
}

TEMPLATE_TEST_CASE("layers/activation: sigmoid and gelu are what their kernels compute, on any number of threads",
                   "[layers]", float, double) {
    const auto check = [](auto spec, auto forward_kernel, auto backward_kernel, bool from_input) {
        for (const std::size_t rows : {0, 1, 300})
            for (const int threads : thread_counts()) {
                auto of = wide<TestType, decltype(spec)>(rows);
                of.team = {threads};
                const auto dy = uniform<TestType>(of.x.size(), 2);
                const auto ran = forward(of);
                auto y = unwritten<TestType>(of.x.size()), dx = y;
                forward_kernel(std::span<const TestType>{of.x}, std::span<TestType>{y});
                backward_kernel(std::span<const TestType>{from_input ? of.x : y}, std::span<const TestType>{dy},
                                std::span<TestType>{dx});
                CHECK(same_bits(ran.y, y));
                CHECK(same_bits(backward(of, ran, dy, one_lane(rows)).dx, dx));
            }
    };
    check(layers::sigmoid{}, kernels::sigmoid_forward<TestType>, kernels::sigmoid_backward<TestType>, false);
    check(layers::gelu{}, kernels::gelu_forward<TestType>, kernels::gelu_backward<TestType>, true);
}

TEST_CASE("layers/activation: what they declare", "[layers]") {
    using layer = layer_of<layers::relu, shape<4, 5, 6>>;
    static_assert(std::is_same_v<layer::input, layer::output> && layer::flops == 120 && layer::parameters.size() == 0);
    static_assert(layer::traits.is_elementwise && layer_of<layers::tanh, shape<3>>::traits.is_elementwise);
    static_assert(!layer::traits.needs_x && layer::traits.needs_y && layer::traits.in_place);
    using gelu = layer_of<layers::gelu, shape<3>>;
    static_assert(gelu::traits.needs_x && !gelu::traits.needs_y && !gelu::traits.in_place);
    CHECK(gelu::name == "gelu");
    CHECK(layer_of<layers::sigmoid, shape<3>>::name == "sigmoid");
    CHECK(layer::name == "relu");
    CHECK(layer_of<layers::tanh, shape<3>>::name == "tanh");
}
