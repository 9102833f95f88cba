// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/conv_options.hpp"

#include "lockstep/layers/tuned_conv.hpp"
#include "reference/kernels.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;
using layers::conv;
using layers::conv_options;
using layers::rows_and_columns;

namespace {

template <std::size_t Filters, rows_and_columns Kernel, conv_options Options, class Input>
struct with_options {
    using layer = layer_of<conv<Filters, Kernel, Options>, Input>;
    static constexpr kernels::convolution value =
        Options.on(Input::extents[0], Input::extents[1], Input::extents[2], Filters, Kernel);
};

using cases = std::tuple<
    with_options<6, rows_and_columns{3, 5}, conv_options{.stride = {2, 1}, .padding = {1, 2}}, shape<7, 6, 3>>,
    with_options<5, 3, conv_options{.padding = 2, .dilation = 2}, shape<8, 9, 4>>,
    with_options<6, rows_and_columns{2, 3}, conv_options{.stride = 2, .padding = {0, 3}, .dilation = {3, 2}},
                 shape<9, 8, 2>>,
    with_options<8, 3, conv_options{.padding = 1, .groups = 2}, shape<6, 6, 6>>,
    with_options<6, 3, conv_options{.dilation = {1, 2}, .groups = 3}, shape<6, 7, 9>>,
    with_options<14, 3, conv_options{.padding = 1, .groups = 7}, shape<5, 6, 7>>,
    with_options<11, rows_and_columns{3, 2}, conv_options{.stride = 2, .padding = 1, .groups = 11}, shape<6, 7, 11>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("layers/conv_options: y, dW, db and dx are those of the definition", "[layers]", cases) {
    using layer = typename TestType::layer;
    static constexpr kernels::convolution g = TestType::value;
    REQUIRE(layer::output::size == g.out_size());
    REQUIRE(tensor::total_size(layer::parameters) == g.weight_count() + g.filters);
    const auto check = [&]<class T>(T) {
        for (const std::size_t rows : std::initializer_list<std::size_t>{0, 1, 3}) {
            const problem<T, layer> of{.rows = rows,
                                       .x = integers<T>(rows * g.in_size(), 1),
                                       .w = integers<T>(g.weight_count() + g.filters, 2)};
            const auto dy = integers<T>(rows * g.out_size(), 3);
            std::vector<double> y(rows * g.out_size()), dx(rows * g.in_size()), dw(g.weight_count() + g.filters);
            kernels::reference::convolution_forward<T>(g, rows, of.x.data(), of.w.data(),
                                                       of.w.data() + g.weight_count(), y.data());
            kernels::reference::convolution_backward_data<T>(g, rows, dy.data(), of.w.data(), dx.data());
            kernels::reference::convolution_backward_weights<T>(g, rows, of.x.data(), dy.data(), dw.data(),
                                                                dw.data() + g.weight_count());
            const auto ran = forward(of);
            CHECK(equal(ran.y, y));
            const auto got = backward(of, ran, dy, one_lane(rows));
            CHECK(equal(got.dx, dx));
            CHECK(equal(got.nodes.at(0), dw));
        }
    };
    check(0.0F);
    check(0.0);
}

TEST_CASE("layers/conv_options: short and long forms are one layer", "[layers]") {
    CHECK(std::is_same_v<
          conv<8, 3, conv_options{.stride = 2, .padding = 1}>,
          conv<8, rows_and_columns{3, 3}, conv_options{.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}}>>);
    CHECK(std::is_same_v<
          layer_of<conv<6, 3, conv_options{.padding = 1, .groups = 6, .bias = layers::bias::none}>, shape<9, 8, 6>>,
          layer_of<layers::depthwise_conv<3, layers::conv_options{.padding = 1, .bias = layers::bias::none}>,
                   shape<9, 8, 6>>>);
}

TEST_CASE("layers/conv_options: what it declares", "[layers]") {
    using grouped = layer_of<conv<256, 5, conv_options{.padding = 2, .groups = 2}>, shape<27, 27, 96>>;
    CHECK(std::is_same_v<grouped::output, shape<27, 27, 256>>);
    CHECK(grouped::parameters[0].size() == 5 * 5 * 48 * 256);
    CHECK(grouped::fan_in == 5 * 5 * 48);
    CHECK(grouped::fan_out == 5 * 5 * 128);
    CHECK(grouped::flops == 2.0 * 27 * 27 * 5 * 5 * 48 * 256);
    // No algorithm but the direct one knows dilation and groups.
    using dilated = layer_of<conv<256, 3, conv_options{.padding = 2, .dilation = 2}>, shape<28, 28, 256>>;
    CHECK(decltype(dilated::by)::forward_algorithm == kernels::algorithm::direct);
    CHECK(std::is_same_v<dilated::output, shape<28, 28, 256>>);
    CHECK(std::is_same_v<
          layer_of<conv<2, rows_and_columns{1, 7}, conv_options{.dilation = {9, 2}}>, shape<4, 15, 3>>::output,
          shape<4, 3, 2>>);
}

TEST_CASE("layers/conv_options: dilation and groups have one algorithm, so tuning leaves them alone", "[layers]") {
    using two_groups = conv<6, 3, conv_options{.groups = 2}>;
    using dilated = conv<6, 3, conv_options{.dilation = {1, 2}}>;
    using one_by_three = conv<6, rows_and_columns{1, 3}>;
    CHECK(std::is_same_v<decltype(two_groups{}.with_rule<layers::tuned>()), two_groups>);
    CHECK(std::is_same_v<decltype(dilated{}.with_rule<layers::tuned>()), dilated>);
    CHECK(std::is_same_v<decltype(one_by_three{}.with_rule<layers::tuned>()),
                         conv<6, rows_and_columns{1, 3}, conv_options{}, layers::tuned>>);
}

TEST_CASE("layers/conv_options: rectangles of depthwise_conv and conv_max_pool", "[layers]") {
    using depthwise =
        layers::depthwise_conv<rows_and_columns{3, 1}, conv_options{.stride = {1, 2}, .dilation = {2, 1}}>;
    CHECK(std::is_same_v<
          layer_of<depthwise, shape<9, 8, 6>>,
          layer_of<conv<6, rows_and_columns{3, 1}, conv_options{.stride = {1, 2}, .dilation = {2, 1}, .groups = 6}>,
                   shape<9, 8, 6>>>);
    using pooled =
        layers::conv_max_pool<4, rows_and_columns{1, 3},
                              layers::conv_max_pool_options{.stride = {2, 1}, .padding = {0, 1}, .window = {1, 2}}>;
    CHECK(std::is_same_v<layer_of<pooled, shape<9, 8, 2>>::output, shape<5, 4, 4>>);
}
