// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/layer_norm.hpp"

#include "reference/normalisation.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

TEMPLATE_TEST_CASE("layers/layer_norm: a sample by its own mean and variance, in training and inference", "[layers]",
                   float, double) {
    using S = shape<2, 3, 7>;
    using layer = layer_of<layers::layer_norm, S>;
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    for (const std::size_t rows : {0, 1, 5}) {
        problem<TestType, layer> of{
            .rows = rows, .x = uniform<TestType>(rows * S::size, 1), .w = uniform<TestType>(2 * S::size, 2)};
        const auto y = forward(of).y;
        const auto exact = kernels::reference::moments_of(rows, S::size, S::size, 1, of.x.data());
        for (std::size_t i = 0; i < y.size(); ++i) {
            const double inverse = 1 / std::sqrt(exact.variance[i / S::size] + 1e-5);
            const double want = (static_cast<double>(of.x[i]) - exact.mean[i / S::size]) * inverse *
                                    static_cast<double>(of.w[i % S::size]) +
                                static_cast<double>(of.w[S::size + i % S::size]);
            // Sums of 42 numbers below 1/2, and the error of the variance.
            REQUIRE(std::abs(static_cast<double>(y[i]) - want) <=
                    50 * 0.5 * eps * inverse * (1 + 0.5 * inverse * inverse));
        }
        of.mode = layer_api::mode::inference;
        const auto inferred = forward(of);
        CHECK(same_bits(inferred.y, y));
        CHECK(std::all_of(inferred.saved.begin(), inferred.saved.end(),
                          [](std::byte one) { return one == std::byte{99}; }));
    }
}

TEMPLATE_TEST_CASE("layers/layer_norm: gradients of scale and shift are added over the lane tree", "[layers]", float,
                   double) {
    using layer = layer_of<layers::layer_norm, shape<9>>;
    for (const auto& lanes : lane_cuts()) {
        const std::size_t rows = lanes.rows();
        const problem<TestType, layer> of{
            .rows = rows, .x = uniform<TestType>(rows * 9, 1), .w = uniform<TestType>(18, 2)};
        const auto dy = uniform<TestType>(rows * 9, 3);
        const auto got = backward(of, forward(of, lanes.count()), dy, lanes);
        CHECK(adds_over_tree(got, lanes, [&](parallel::block part) {
            const auto mine = of.part(part.first, part.size());
            const array<TestType> gradient(dy.begin() + static_cast<std::ptrdiff_t>(part.first * 9),
                                           dy.begin() + static_cast<std::ptrdiff_t>(part.last * 9));
            return backward(mine, forward(mine), gradient, one_lane(part.size())).nodes.at(0);
        }));
    }
}

TEST_CASE("layers/layer_norm: a variance that overflows shows", "[layers]") {
    using layer = layer_of<layers::layer_norm, shape<19>>;
    problem<float, layer> of{.rows = 2, .x = uniform<float>(2 * 19, 1), .w = uniform<float>(2 * 19, 2)};
    of.x[3] = 1e30F;
    const auto y = forward(of).y;
    CHECK(std::all_of(y.begin(), y.begin() + 19, [](float one) { return std::isnan(one); }));
    CHECK(std::none_of(y.begin() + 19, y.end(), [](float one) { return std::isnan(one); }));
}

TEST_CASE("layers/layer_norm: what it declares and refuses", "[layers]") {
    using layer = layer_of<layers::layer_norm, shape<4, 5, 6>>;
    static_assert(std::is_same_v<layer::input, layer::output> && tensor::total_size(layer::parameters) == 240);
    static_assert(layer::parameters[0].initial == tensor::start::ones &&
                  layer::parameters[1].initial == tensor::start::zeros);
    static_assert(!layer::parameters[0].decays && !layer::parameters[1].decays);
    static_assert(layer_api::saved_bytes<layer, double> == 16);
    CHECK(layer::name == "layer_norm");
    CHECK(layers::layer_norm{}.settings() == "epsilon=1e-05");
    CHECK_NOTHROW(layers::layer_norm{}.check());
    CHECK_THROWS_WITH(layers::layer_norm{.epsilon = -1}.check(),
                      Catch::Contains("lockstep: layer_norm has epsilon = -1, outside [1e-37, 1e37];"));
    CHECK_NOTHROW(layers::layer_norm{.epsilon = 1e37}.check());
    for (const double bad : {1e39, static_cast<double>(INFINITY), static_cast<double>(NAN)})
        CHECK_THROWS_AS(layers::layer_norm{.epsilon = bad}.check(), core::error);
}
