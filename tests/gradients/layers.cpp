// SPDX-License-Identifier: BSD-3-Clause
// Backward passes of all layers against central differences in double precision.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// Uneven, empty and single lanes in the middle of a minibatch: 11 rows in all.
tensor::lane_set lanes_of_eleven_rows() {
    tensor::lane_set out{9, {1, 8}};
    out.assign(std::vector<std::size_t>{4, 2, 0, 1, 3, 1, 1, 3, 6});
    return out;
}

constexpr double step = 1e-5;

/// All different and in random order, in (-1, 1): neighbours are 2 / n apart and the smallest is at least 1 / (2 n), so
/// that no step of a central difference crosses the kink of relu or changes the winner of a maximum.
array<double> spread(std::size_t n, std::uint32_t series) {
    REQUIRE(0.5 / static_cast<double>(n) >= 10 * step);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const core::random_stream random{11, core::purpose::user, series};
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return random.word(a) < random.word(b); });
    array<double> out(n);
    for (std::size_t i = 0; i < n; ++i)
        out[i] = (2.0 * static_cast<double>(order[i]) + 1.5) / static_cast<double>(n) - 1.0;
    return out;
}

/// d(sum_i g_i y_i) / d(number) from two forward runs, and how far rounding and the third derivative can have moved it.
struct difference {
    double derivative = 0;
    double tolerance = 0;
};

/// How a layer's outputs depend on one number: bounds for the third derivative, for the magnitude of an output and for
/// the operations that round on the way to it.
struct behaviour {
    double third = 0;
    double largest = 1;
    double terms = 0;
};

/// Layers whose outputs are sums of at most `fan_in` products and a bias, all below 1 in magnitude, or a function of
/// one number with a third derivative below 2 (tanh, sigmoid, gelu).
template <class L>
constexpr behaviour behaviour_of{.third = 2, .largest = 1, .terms = [] {
                                     if constexpr (L::parameters.size() > 0)
                                         return static_cast<double>(L::parameters[0].fan_in) + 2;
                                     else  // a pool's window
                                         return L::flops > static_cast<double>(L::output::size)
                                                    ? L::flops / static_cast<double>(L::output::size) + 2
                                                    : 2;
                                 }()};

/// Normalised numbers, with an epsilon of 0.1: (a + b h) W(h)^(-1/2) for a step of h, where W = variance + epsilon = W
/// + p h + q h^2 and |a| <= 2, |b| <= 1. A lane or sample of M numbers has p = 2 (x - mean) / M with p^2 <= 4 variance
/// / M <= 2 W and q <= 1/4 (M = 1 does not move at all). So |(W^(-1/2))''| <= 3/4 p^2 W^(-5/2) + q W^(-3/2) <= 1.75
/// W^(-3/2) <= 56, |(W^(-1/2))'''| <= 15/8 |p|^3 W^(-7/2) + 9/2 |p| q W^(-5/2) <= 5.4 W^-2 + 1.6 W^-2 <= 700, and the
/// third derivative stays below 2 x 700 + 3 x 56; times a scale below 1/2. Sums have at most 4 rows x 6 pixels or 36
/// features.
constexpr behaviour normalised{.third = 800, .largest = 4, .terms = 36 + 10};
template <class S>
constexpr behaviour behaviour_of<layer_api::batch_norm_layer<S>> = normalised;
/// No step crosses its kink: the numbers stay what they are.
template <class S>
constexpr behaviour behaviour_of<layer_api::batch_norm_layer<S, layer_api::epilogue::relu>> = normalised;
template <class S>
constexpr behaviour behaviour_of<layer_api::layer_norm_layer<S>> = normalised;
/// x (2 + 0.5 sum of x^2)^(-3/4) with |x| < 1: as above with W >= 2, |p| <= 1, q <= 1/2: |w''| <= 21/16 p^2 W^(-11/4) +
/// 3/2 q W^(-7/4) < 1 and |w'''| <= 3.61 W^(-15/4) + 4 W^(-11/4) < 1.
template <std::size_t Window, class S>
constexpr behaviour behaviour_of<layer_api::local_response_norm_layer<Window, S>>{
    .third = 4, .largest = 1, .terms = Window + 10};

/// With c outputs that see the number and |g_i| <= 1:
///   truncation: step^2 / 6 x third x c,
///   rounding of y: terms^2 u largest for each of them, twice, over 2 step,
///   rounding of the sum of c terms, and of the analytic one: c^2 u.
difference central(const array<double>& above, const array<double>& below, const array<double>& g,
                   const behaviour& how) {
    constexpr double u = std::numeric_limits<double>::epsilon() / 2;
    difference out;
    double seen = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
        out.derivative += g[i] * ((above[i] - below[i]) / (2 * step));
        seen += above[i] != below[i];
    }
    out.tolerance = step * step / 6 * how.third * seen + seen * how.terms * how.terms * u * how.largest / step +
                    seen * seen * u * how.largest;
    return out;
}

/// Each of `numbers` moved by a step in both directions, against `analytic`.
template <class L>
void compare(problem<double, L>& of, array<double>& numbers, const array<double>& analytic, const array<double>& g) {
    REQUIRE(numbers.size() == analytic.size());
    double largest = 0;
    for (const double one : analytic) largest = std::max(largest, std::abs(one));
    const auto winners = forward(of).saved;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double before = numbers[i];
        numbers[i] = before + step;
        const auto above = forward(of);
        numbers[i] = before - step;
        const auto below = forward(of);
        numbers[i] = before;
        // The outputs of its convolution are not spread out as x is: no step may change a winner.
        if constexpr (L::name == "conv_max_pool") REQUIRE((above.saved == winners && below.saved == winners));
        const auto [derivative, tolerance] = central(above.y, below.y, g, behaviour_of<L>);
        INFO(L::name << ": number " << i << ": " << analytic[i] << ", central difference " << derivative
                     << ", tolerance " << tolerance);
        // The test can see an error of a ten-thousandth.
        REQUIRE(tolerance <= 1e-4 * largest);
        REQUIRE(std::abs(analytic[i] - derivative) <= tolerance);
    }
}

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
    const auto lanes = lanes_of_eleven_rows();
    const std::size_t rows = lanes.rows();
    REQUIRE(rows == 11);

    problem<double, layer> of{.rows = rows,
                              .x = spread(rows * layer::input::size, 1),
                              .w = uniform<double>(problem<double, layer>::weights, 2)};
    of.first_row = lanes.first_row();
    of.lanes = &lanes;
    tune(of.layer);
    auto g = uniform<double>(rows * layer::output::size, 3);
    const auto ran = forward(of, lanes.count());
    const auto got = backward(of, ran, g, lanes);

    compare(of, of.x, got.dx, g);

    // The nodes of the lane tree together hold the gradient with respect to the parameters.
    array<double> dw(problem<double, layer>::weights);
    for (const auto& node : got.nodes)
        for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += node[i];
    compare(of, of.w, dw, g);
}

TEMPLATE_LIST_TEST_CASE("gradients/layers: each node of the lane tree holds the gradient of its own rows",
                        "[gradients]", weighted_layers) {
    using layer = typename TestType::layer;
    const auto lanes = lanes_of_eleven_rows();
    problem<double, layer> of{.rows = lanes.rows(),
                              .x = spread(lanes.rows() * layer::input::size, 1),
                              .w = uniform<double>(problem<double, layer>::weights, 2)};
    of.lanes = &lanes;
    tune(of.layer);
    const auto g = uniform<double>(lanes.rows() * layer::output::size, 3);
    const auto got = backward(of, forward(of, lanes.count()), g, lanes);
    REQUIRE(lanes.trees().size() > 2);
    for (std::size_t node = 0; node < lanes.trees().size(); ++node) {
        const auto blocks = lanes.blocks(lanes.trees()[node]);
        auto masked = g;
        for (std::size_t i = 0; i < masked.size(); ++i)
            if (i / layer::output::size < blocks.front().first || i / layer::output::size >= blocks.back().last)
                masked[i] = 0;
        compare(of, of.w, got.nodes[node], masked);
    }
}
