// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/shortcut.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

template <class T, class Spec, class Input>
void check() {
    using layer = layer_of<Spec, Input>;
    static_assert(layer_api::Layer<layer, T>);
    constexpr std::size_t rows_in = Input::extents[0], columns_in = Input::extents[1], channels_in = Input::extents[2];
    constexpr std::size_t rows_out = layer::output::extents[0], columns_out = layer::output::extents[1],
                          channels = layer::output::extents[2];
    constexpr std::size_t stride = rows_out == rows_in ? 1 : 2, before = (channels - channels_in) / 2;
    for (const std::size_t rows : {0U, 1U, 5U})
        for (const int threads : thread_counts()) {
            problem<T, layer> of{.rows = rows, .x = uniform<T>(rows * Input::size, 1)};
            of.team = {threads};
            const auto ran = forward(of);
            const auto dy = uniform<T>(rows * layer::output::size, 2);
            const auto got = backward(of, ran, dy, one_lane(rows));
            array<T> dx(rows * Input::size);
            for (std::size_t n = 0; n < rows; ++n)
                for (std::size_t r = 0; r < rows_out; ++r)
                    for (std::size_t c = 0; c < columns_out; ++c)
                        for (std::size_t k = 0; k < channels; ++k) {
                            const std::size_t out = ((n * rows_out + r) * columns_out + c) * channels + k;
                            const bool inside = k >= before && k < before + channels_in;
                            const std::size_t in =
                                ((n * rows_in + r * stride) * columns_in + c * stride) * channels_in +
                                (inside ? k - before : 0);
                            REQUIRE(ran.y[out] == (inside ? of.x[in] : T{0}));
                            if (inside) dx[in] = dy[out];
                        }
            CHECK(same_bits(got.dx, dx));
        }
}

}  // namespace

TEMPLATE_TEST_CASE("layers/shortcut: every second place, and zeros around the channels", "[layers]", float, double) {
    check<TestType, layers::shortcut<5, 2>, shape<5, 4, 2>>();
    check<TestType, layers::shortcut<32, 2>, shape<4, 6, 16>>();
    check<TestType, layers::shortcut<3>, shape<3, 2, 3>>();
    check<TestType, layers::shortcut<8>, shape<2, 2, 3>>();
    static_assert(std::is_same_v<layer_of<layers::shortcut<32, 2>, shape<32, 32, 16>>::output, shape<16, 16, 32>>);
    static_assert(std::is_same_v<layer_of<layers::shortcut<5, 2>, shape<5, 4, 2>>::output, shape<3, 2, 5>>);
}
