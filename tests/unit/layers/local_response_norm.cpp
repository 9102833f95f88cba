// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/local_response_norm.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

TEMPLATE_TEST_CASE(
    "layers/local_response_norm: each number by the squares of its neighbours, at the ends of the channels too",
    "[layers]", float, double) {
    using S = shape<2, 1, 7>;
    const problem<TestType, layer_api::local_response_norm_layer<3, S>> of{
        .rows = 2,
        .x = uniform<TestType>(2 * S::size, 1),
        .layer = layers::local_response_norm<3>{.alpha = 0.5, .offset = 1}.on(S{})};
    const auto y = forward(of).y;
    for (std::size_t i = 0; i < of.x.size(); ++i) {
        double base = 1;
        for (std::size_t j = 0; j < of.x.size(); ++j)
            if (j / 7 == i / 7 && j + 1 >= i && j <= i + 1)
                base += 0.5 * static_cast<double>(of.x[j]) * static_cast<double>(of.x[j]);
        // About a dozen roundings of numbers below 1/2 on the way.
        CHECK(std::abs(static_cast<double>(y[i]) - static_cast<double>(of.x[i]) * std::pow(base, -0.75)) <=
              12 * 0.5 * static_cast<double>(std::numeric_limits<TestType>::epsilon()));
    }
}

TEST_CASE("layers/local_response_norm: zeros stay zeros at the ends of what is allowed", "[layers]") {
    using S = shape<1, 1, 7>;
    for (const auto& spec : {layers::local_response_norm<3>{.alpha = 0, .offset = 1e-37},
                             layers::local_response_norm<3>{.beta = 1.5, .offset = 1e-24},
                             layers::local_response_norm<3>{.alpha = 6e36, .offset = 1e37}}) {
        spec.check();
        const problem<float, layer_api::local_response_norm_layer<3, S>> of{
            .rows = 1, .x = array<float>(S::size, 0.0F), .layer = spec.on(S{})};
        const auto there = forward(of);
        const auto back = backward(of, there, array<float>(S::size, 0.0F), one_lane(1));
        for (std::size_t i = 0; i < S::size; ++i) CHECK((there.y[i] == 0 && back.dx[i] == 0));
    }
}

TEST_CASE("layers/local_response_norm: what it declares and refuses", "[layers]") {
    using layer = layer_of<layers::local_response_norm<5>, shape<4, 5, 6>>;
    static_assert(std::is_same_v<layer::input, layer::output> && layer::parameters.size() == 0);
    static_assert(!layer::traits.is_elementwise);
    CHECK(layer::name == "local_response_norm");
    CHECK(layers::local_response_norm<5>{}.settings() == "alpha=1e-04 beta=0.75 offset=2");
    CHECK_NOTHROW(layers::local_response_norm<5>{}.check());
    CHECK_THROWS_WITH(layers::local_response_norm<5>{.offset = 0}.check(),
                      Catch::Contains("lockstep: local_response_norm has alpha = 1e-04, beta = 0.75 and offset = 0;"));
    CHECK_THROWS_AS(layers::local_response_norm<5>{.alpha = -1}.check(), core::error);
    CHECK_THROWS_AS(layers::local_response_norm<5>{.beta = NAN}.check(), core::error);
    CHECK_THROWS_AS(layers::local_response_norm<5>{.alpha = 1e39}.check(), core::error);
    CHECK_THROWS_AS(layers::local_response_norm<5>{.offset = 1e39}.check(), core::error);
    CHECK_THROWS_AS(layers::local_response_norm<5>{.offset = NAN}.check(), core::error);
    CHECK_THROWS_WITH((layers::local_response_norm<5>{.alpha = 1e37, .beta = 8}.check()),
                      Catch::Contains("beta = 8 and offset = 2, so that 2 alpha beta or offset^-beta is above 1e37;"));
    CHECK_THROWS_AS((layers::local_response_norm<5>{.beta = 1.5, .offset = 1e-30}.check()), core::error);
}
