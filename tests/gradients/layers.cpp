// SPDX-License-Identifier: BSD-3-Clause
// Backward passes of all layers against central differences in double precision, by the check that users have.
#include "lockstep/check_gradients.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// Numbers that show: with the usual ones a normalisation is nearly linear, or too sharp for differences.
template <class L>
void tune(L& layer) {
    if constexpr (requires { layer.rate; }) layer.rate = 0.4;
    if constexpr (requires { layer.epsilon; }) layer.epsilon = 0.1;
    if constexpr (requires { layer.alpha; }) layer.alpha = 0.5;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("gradients/layers: backward is the derivative of forward", "[gradients]", all_layers) {
    using layer = typename TestType::layer;
    layer of;
    tune(of);
    const auto found = lockstep::check_gradients(of, {.seed = 11});
    INFO(found.text());
    CHECK(found.passes());
    // x and each parameter; then the other ways in which the layer may be run.
    constexpr auto says = lockstep::layer_api::traits_of<layer>;
    constexpr bool is_in_place = says.in_place && layer::input::size == layer::output::size;
    constexpr std::size_t learns = layer::parameters.size() > 0 ? 1 : 0, sums = says.sums_gradient ? 1 : 0;
    CHECK(found.worst.size() ==
          1 + layer::parameters.size() + sums * (1 + learns) + (is_in_place ? 2 + learns + sums : 0));
}

TEMPLATE_LIST_TEST_CASE("gradients/layers: each node of the lane tree holds the gradient of its own rows",
                        "[gradients]", weighted_layers) {
    using layer = typename TestType::layer;
    // Uneven, empty and single lanes in the middle of a minibatch.
    tensor::lane_set lanes{9, {1, 8}};
    lanes.assign(std::vector<std::size_t>{4, 2, 0, 1, 3, 1, 1, 3, 6});
    problem<double, layer> of{.rows = lanes.rows(),
                              .x = uniform<double>(lanes.rows() * layer::input::size, 1),
                              .w = uniform<double>(problem<double, layer>::weights, 2)};
    of.lanes = &lanes;
    tune(of.layer);
    const auto g = uniform<double>(lanes.rows() * layer::output::size, 3);
    const auto ran = forward(of, lanes.count());
    // All nodes together hold the whole gradient, see above: so it is enough that rows reach no other node.
    const auto got = backward(of, ran, g, lanes);
    REQUIRE(lanes.trees().size() > 2);
    for (std::size_t node = 0; node < lanes.trees().size(); ++node) {
        const auto blocks = lanes.blocks(lanes.trees()[node]);
        auto masked = g;
        for (std::size_t i = 0; i < masked.size(); ++i)
            if (i / layer::output::size < blocks.front().first || i / layer::output::size >= blocks.back().last)
                masked[i] = 0;
        const auto of_rows = backward(of, ran, masked, lanes);
        for (std::size_t other = 0; other < lanes.trees().size(); ++other)
            for (std::size_t i = 0; i < problem<double, layer>::weights; ++i)
                REQUIRE(of_rows.nodes[other][i] == (other == node ? got.nodes[node][i] : 0.0));
    }
}
