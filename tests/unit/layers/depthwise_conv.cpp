// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/depthwise_conv.hpp"

#include "reference/kernels.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

TEMPLATE_TEST_CASE("layers/depthwise_conv: the gradient is that of each lane, added over the tree", "[layers]", float,
                   double) {
    using T = TestType;
    using layer = layer_of<layers::depthwise_conv<3, layers::conv_options{.stride = 2, .padding = 1}>, shape<7, 8, 19>>;
    const kernels::convolution g = [] {
        auto square = layers::conv<19, 3, layers::conv_options{.stride = 2, .padding = 1}>::geometry<shape<7, 8, 19>>;
        square.groups = 19;
        return square;
    }();
    constexpr std::size_t weights = 9 * 19;
    for (const auto& lanes : lane_cuts())
        for (const int threads : thread_counts()) {
            problem<T, layer> of{
                .rows = lanes.rows(), .x = uniform<T>(lanes.rows() * g.in_size(), 1), .w = uniform<T>(weights + 19, 2)};
            of.team = {threads};
            const auto dy = uniform<T>(lanes.rows() * g.out_size(), 3);
            const auto lane = [&](parallel::block rows) {
                auto gradient = unwritten<T>(weights + 19);
                kernels::depthwise_backward_weights<T>(g, rows.size(), of.x.data() + rows.first * g.in_size(),
                                                       dy.data() + rows.first * g.out_size(), gradient.data(),
                                                       gradient.data() + weights, {1});
                return gradient;
            };
            CHECK(adds_over_tree(backward(of, forward(of, lanes.count()), dy, lanes), lanes, lane));
        }
}

TEST_CASE("layers/depthwise_conv: what it declares", "[layers]") {
    using layer = layer_of<layers::depthwise_conv<3, layers::conv_options{.padding = 1}>, shape<14, 14, 512>>;
    CHECK(layer_api::Layer<layer>);
    CHECK(layer::name == "depthwise");
    CHECK(std::is_same_v<layer::output, shape<14, 14, 512>>);
    CHECK(tensor::total_size(layer::parameters) == 3 * 3 * 512 + 512);
    CHECK(layer::parameters[0].fan_in == 9);
    CHECK(layer::flops == 2.0 * 14 * 14 * 9 * 512);
    CHECK(layer_api::scratch_size<float>(layer{}, 64, 8, {2}) == 0);
    CHECK(
        layer_of<layers::depthwise_conv<3, layers::conv_options{.stride = 2, .padding = 1, .bias = layers::bias::none}>,
                 shape<8, 8, 5>>::parameters.size() == 1);
    // One channel: an ordinary convolution.
    CHECK(layer_of<layers::depthwise_conv<3>, shape<8, 8, 1>>::name == "conv");
    CHECK(std::is_same_v<layer_of<layers::depthwise_conv<3>, shape<8, 8, 1>>,
                         layer_of<layers::conv<1, 3>, shape<8, 8, 1>>>);
}
