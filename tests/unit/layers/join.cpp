// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/join.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

TEMPLATE_TEST_CASE("layers/join: add is the sum from the left, also in the memory of one of its inputs", "[layers]",
                   float, double) {
    using T = TestType;
    using layer = layer_api::add_layer<3, shape<3, 5, 2>>;
    static_assert(layer_api::Layer<layer> && layer_api::is_join<layer> && layer::traits.passes_gradient);
    static_assert(
        std::is_same_v<decltype(layer_api::add_join{}.on(shape<4>{}, shape<4>{})), layer_api::add_layer<2, shape<4>>>);
    for (const std::size_t rows : {0U, 1U, 7U})
        for (const int threads : thread_counts()) {
            const std::size_t n = rows * layer::input::size;
            const array<T> x[3] = {uniform<T>(n, 1), uniform<T>(n, 2), uniform<T>(n, 3)};
            array<T> expected(n);
            for (std::size_t i = 0; i < n; ++i) expected[i] = (x[0][i] + x[1][i]) + x[2][i];
            auto y = unwritten<T>(n);
            layer{}.forward(layer_api::forward_pass<T, layer>{
                .x = {x[0].data(), x[1].data(), x[2].data()}, .y = {y.data(), rows}, .use = {{threads}, {}}});
            CHECK(same_bits(y, expected));
            for (std::size_t over = 0; over < 3; ++over) {
                array<T> copy = x[over];
                std::array<const T*, 3> from{x[0].data(), x[1].data(), x[2].data()};
                from[over] = copy.data();
                layer::add<T>(from, copy.data(), rows, {threads});
                CHECK(same_bits(copy, expected));
            }
        }
}

TEMPLATE_TEST_CASE("layers/join: concatenate puts channels after channels, backward takes them apart", "[layers]",
                   float, double) {
    using T = TestType;
    using layer = decltype(layer_api::concatenate_join{}.on(shape<2, 3, 4>{}, shape<2, 3, 1>{}, shape<2, 3, 5>{}));
    static_assert(std::is_same_v<typename layer::output, shape<2, 3, 10>> && layer_api::Layer<layer> &&
                  !layer::traits.passes_gradient && layer::traits.inputs == 3);
    static_assert(
        std::is_same_v<typename decltype(layer_api::concatenate_join{}.on(shape<4>{}, shape<7>{}))::output, shape<11>>);
    static_assert(!layer_api::places_agree<shape<2, 3, 4>, shape<3, 2, 4>> &&
                  !layer_api::places_agree<shape<24>, shape<2, 3, 4>> &&
                  !layer_api::places_agree<shape<2, 3, 4>, shape<24>>);
    // Of any rank, the last extent.
    static_assert(
        std::is_same_v<typename decltype(layer_api::concatenate_join{}.on(shape<2, 3>{}, shape<2, 5>{}))::output,
                       shape<2, 8>>);
    static_assert(std::is_same_v<typename decltype(layer_api::concatenate_join{}.on(shape<2, 3, 4, 1>{},
                                                                                    shape<2, 3, 4, 6>{}))::output,
                                 shape<2, 3, 4, 7>>);
    static_assert(!layer_api::places_agree<shape<2, 3>, shape<3, 3>> &&
                  !layer_api::places_agree<shape<2, 3, 4, 1>, shape<2, 4, 3, 1>>);
    for (const std::size_t rows : {0U, 1U, 5U})
        for (const int threads : thread_counts()) {
            const array<T> x[3] = {uniform<T>(rows * 24, 1), uniform<T>(rows * 6, 2), uniform<T>(rows * 30, 3)};
            auto y = unwritten<T>(rows * 60);
            layer{}.forward(layer_api::forward_pass<T, layer>{
                .x = {x[0].data(), x[1].data(), x[2].data()}, .y = {y.data(), rows}, .use = {{threads}, {}}});
            for (std::size_t place = 0; place < rows * 6; ++place)
                for (std::size_t c = 0; c < 10; ++c)
                    REQUIRE(y[place * 10 + c] == (c < 4   ? x[0][place * 4 + c]
                                                  : c < 5 ? x[1][place]
                                                          : x[2][place * 5 + c - 5]));
            auto first = unwritten<T>(rows * 24), last = unwritten<T>(rows * 30);
            layer{}.backward(layer_api::backward_pass<T, layer>{
                .dy = {y.data(), rows}, .dx = {first.data(), nullptr, last.data()}, .use = {{threads}, {}}});
            CHECK(same_bits(first, x[0]));
            CHECK(same_bits(last, x[2]));
        }
}
