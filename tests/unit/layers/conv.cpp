// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/conv.hpp"

#include "reference/kernels.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// The geometry once more, as the tests understand conv and its options.
template <std::size_t Filters, std::size_t Kernel, std::size_t Stride, std::size_t Padding, class Input>
struct geometry {
    using layer =
        layer_of<layers::conv<Filters, Kernel, layers::conv_options{.stride = Stride, .padding = Padding}>, Input>;
    static constexpr kernels::convolution value{.rows = Input::extents[0],
                                                .columns = Input::extents[1],
                                                .channels = Input::extents[2],
                                                .filters = Filters,
                                                .kernel_rows = Kernel,
                                                .kernel_columns = Kernel,
                                                .stride_rows = Stride,
                                                .stride_columns = Stride,
                                                .pad_top = Padding,
                                                .pad_bottom = Padding,
                                                .pad_left = Padding,
                                                .pad_right = Padding};
};

using geometries = std::tuple<geometry<4, 3, 1, 0, shape<6, 7, 3>>, geometry<17, 5, 1, 0, shape<8, 8, 1>>,
                              geometry<8, 3, 2, 1, shape<9, 8, 3>>, geometry<3, 5, 1, 2, shape<5, 5, 1>>,
                              geometry<16, 1, 1, 0, shape<4, 3, 2>>, geometry<2, 2, 3, 1, shape<5, 6, 2>>>;

template <class T, class L>
problem<T, L> with(const array<T>& x, const array<T>& w, std::size_t rows) {
    return {.rows = rows, .x = x, .w = w};
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("layers/conv: y, dW, db and dx are those of the definition", "[layers]", geometries) {
    using layer = typename TestType::layer;
    static constexpr kernels::convolution g = TestType::value;
    static_assert(layer::output::size == g.out_size() && layer::input::size == g.in_size());
    const auto check = [&]<class T>(T) {
        for (const std::size_t rows : {0, 1, 3, 5}) {
            const auto of =
                with<T, layer>(integers<T>(rows * g.in_size(), 1), integers<T>(g.weight_count() + g.filters, 2), rows);
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

            const auto real =
                with<T, layer>(uniform<T>(rows * g.in_size(), 1), uniform<T>(g.weight_count() + g.filters, 2), rows);
            kernels::reference::convolution_forward<T>(g, rows, real.x.data(), real.w.data(),
                                                       real.w.data() + g.weight_count(), y.data());
            CHECK(distance(forward(real).y, y) <= sum_tolerance<T>(layer::fan_in + 1, 0.5));
        }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_LIST_TEST_CASE("layers/conv: the gradient is that of each lane, added over the tree", "[layers]", geometries) {
    using layer = typename TestType::layer;
    static constexpr kernels::convolution g = TestType::value;
    const auto check = [&]<class T>(T) {
        for (const auto& lanes : lane_cuts())
            for (const int threads : thread_counts()) {
                auto of = with<T, layer>(uniform<T>(lanes.rows() * g.in_size(), 1),
                                         uniform<T>(g.weight_count() + g.filters, 2), lanes.rows());
                of.team = {threads};
                const auto dy = uniform<T>(lanes.rows() * g.out_size(), 3);
                const auto lane = [&](parallel::block rows) {
                    auto gradient = unwritten<T>(g.weight_count() + g.filters);
                    scratch<T> s(kernels::convolution_backward_weights_scratch<T>(g, rows.size(), {1}), {1});
                    kernels::convolution_backward_weights<T>(g, rows.size(), of.x.data() + rows.first * g.in_size(),
                                                             dy.data() + rows.first * g.out_size(), gradient.data(),
                                                             gradient.data() + g.weight_count(), s.use);
                    return gradient;
                };
                CHECK(adds_over_tree(backward(of, forward(of, lanes.count()), dy, lanes), lanes, lane));
            }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_TEST_CASE("layers/conv: without a bias it is the convolution whose bias is 0", "[layers]", float, double) {
    using T = TestType;
    using with_bias = layer_of<layers::conv<17, 3, layers::conv_options{.stride = 2, .padding = 1}>, shape<9, 8, 3>>;
    using without =
        layer_of<layers::conv<17, 3, layers::conv_options{.stride = 2, .padding = 1, .bias = layers::bias::none}>,
                 shape<9, 8, 3>>;
    static_assert(without::parameters.size() == 1 && tensor::total_size(without::parameters) == 3 * 3 * 3 * 17);
    static_assert(layer_api::Layer<without> && without::flops == with_bias::flops);
    for (const auto& lanes : lane_cuts()) {
        const auto x = uniform<T>(lanes.rows() * with_bias::input::size, 1);
        const auto w = uniform<T>(3 * 3 * 3 * 17, 2);
        auto w_and_zeros = w;
        w_and_zeros.resize(w.size() + 17);
        const auto dy = uniform<T>(lanes.rows() * with_bias::output::size, 3);
        const auto one = with<T, without>(x, w, lanes.rows());
        const auto other = with<T, with_bias>(x, w_and_zeros, lanes.rows());
        const auto ran = forward(one, lanes.count()), other_ran = forward(other, lanes.count());
        CHECK(same_bits(ran.y, other_ran.y));
        const auto got = backward(one, ran, dy, lanes), expected = backward(other, other_ran, dy, lanes);
        CHECK(same_bits(got.dx, expected.dx));
        for (std::size_t node = 0; node < got.nodes.size(); ++node) {
            auto weights = expected.nodes[node];
            weights.resize(w.size());
            CHECK(same_bits(got.nodes[node], weights));
        }
    }
}

TEST_CASE("layers/conv: what it declares", "[layers]") {
    using layer = layer_of<layers::conv<64, 5>, shape<12, 12, 32>>;
    static_assert(std::is_same_v<layer::output, shape<8, 8, 64>>);
    static_assert(tensor::total_size(layer::parameters) == 5 * 5 * 32 * 64 + 64);
    static_assert(layer::flops == 2.0 * 8 * 8 * 5 * 5 * 32 * 64);
    static_assert(layer::parameters[0].fan_in == 5 * 5 * 32 && layer::parameters[0].fan_out == 5 * 5 * 64);
    static_assert(layer::parameters[1].initial == tensor::start::zeros && !layer::parameters[1].decays);
    static_assert(!layer_api::is_shardable<layer>);
    // Stride 2 and one row and column of zeros on each side; what does not fill a window is left out.
    static_assert(std::is_same_v<
                  layer_of<layers::conv<6, 3, layers::conv_options{.stride = 2, .padding = 1}>, shape<9, 8, 3>>::output,
                  shape<5, 4, 6>>);
    CHECK(layer::name == "conv");
}
