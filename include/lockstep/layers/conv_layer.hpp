// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A convolution bound to its input, whose algorithms a rule picks. Models Layer.
// Tested by tests/unit/layers/conv.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/kernels/convolution/algorithm.hpp"
#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv_options.hpp"
#include "lockstep/layers/window_details.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// The biases among the weights of a layer, or null where there are none.
template <layers::bias Bias>
[[nodiscard]] constexpr auto* bias_of(const auto& w) noexcept {
    if constexpr (Bias == layers::bias::each)
        return w[1].data();
    else
        return static_cast<decltype(w[0].data())>(nullptr);
}

/// What the spec of a convolution holds beside its type: nothing, if a rule picks the algorithms. tuned_conv.hpp has
/// another version.
template <kernels::algorithm_rule Rule>
struct conv_settings {};

/// The passes of a convolution by the algorithms that the rule picks from the geometry; others are not compiled.
template <kernels::convolution G, kernels::algorithm_rule Rule>
struct conv_algorithms {
    using pass = kernels::convolution_pass;
    static constexpr auto forward_algorithm = Rule(G, pass::forward);
    static constexpr auto data_algorithm = Rule(G, pass::backward_data);
    static constexpr auto weights_algorithm = Rule(G, pass::backward_weights);
    template <class T, pass Pass>
    static constexpr auto narrow = kernels::known_narrow<T>(Rule(G, Pass), G, Pass);
    template <class T, pass Pass>
    static constexpr auto ways = core::compiles_kernels ? kernels::known_ways<T>(Rule(G, Pass), G, Pass)
                                                        : kernels::detail::direct_ways{};
    static_assert(kernels::applies(forward_algorithm, G) && kernels::applies(data_algorithm, G) &&
                      kernels::applies(weights_algorithm, G),
                  "lockstep: the rule of a convolution picks an algorithm that does not apply to its geometry; see "
                  "kernels::applies");

    constexpr conv_algorithms() = default;
    constexpr explicit conv_algorithms(const conv_settings<Rule>&) noexcept {}

    [[nodiscard]] static constexpr std::string_view remark() noexcept {
        return forward_algorithm == kernels::algorithm::direct ? "" : kernels::name(forward_algorithm);
    }
    template <class T>
    [[nodiscard]] static constexpr std::size_t scratch(std::size_t rows, parallel::team team) {
        return std::max(
            {kernels::convolve_forward_scratch<forward_algorithm, T, narrow<T, pass::forward>>(G, rows, team),
             kernels::convolve_backward_data_scratch<data_algorithm, T, narrow<T, pass::backward_data>>(G, rows, team),
             weights_scratch<T>(rows, team)});
    }
    template <class T>
    [[nodiscard]] static constexpr std::size_t weights_scratch(std::size_t rows, parallel::team team) {
        return kernels::convolve_backward_weights_scratch<weights_algorithm, T, narrow<T, pass::backward_weights>>(
            G, rows, team);
    }
    template <class T>
    static void forward(std::size_t rows, const T* x, const T* w, const T* bias, T* y,
                        kernels::resources<T> use) noexcept {
        kernels::convolve_forward<forward_algorithm, T, narrow<T, pass::forward>, ways<T, pass::forward>>(G, rows, x, w,
                                                                                                          bias, y, use);
    }
    template <class T>
    static void backward_data(std::size_t rows, const T* dy, const T* w, T* dx, kernels::resources<T> use) noexcept {
        kernels::convolve_backward_data<data_algorithm, T, narrow<T, pass::backward_data>,
                                        ways<T, pass::backward_data>>(G, rows, dy, w, dx, use);
    }
    template <class T>
    static void backward_weights(std::size_t rows, const T* x, const T* dy, T* dw, T* dbias,
                                 kernels::resources<T> use) noexcept {
        kernels::convolve_backward_weights<weights_algorithm, T, narrow<T, pass::backward_weights>,
                                           ways<T, pass::backward_weights>>(G, rows, x, dy, dw, dbias, use);
    }
};

/// The algorithms of a rule are a part of the network where they are not the usual ones. Those of layers::tuned are
/// numbers, and a line of the recipe by themselves.
template <kernels::convolution G, kernels::algorithm_rule Rule>
[[nodiscard]] constexpr window_details with_algorithms(window_details out) noexcept {
    using by = conv_algorithms<G, Rule>;
    if constexpr (requires { by::forward_algorithm; }) {
        using usual = conv_algorithms<G, kernels::preferred_algorithm>;
        if (by::forward_algorithm != usual::forward_algorithm || by::data_algorithm != usual::data_algorithm ||
            by::weights_algorithm != usual::weights_algorithm)
            out.algorithms = {kernels::name(by::forward_algorithm), kernels::name(by::data_algorithm),
                              kernels::name(by::weights_algorithm)};
    }
    return out;
}

/// y = x * W + b for the geometry G: x is rows x columns x channels, W is kernel rows x kernel columns x channels of a
/// group x filters. Cost per sample and pass: 2 out_rows out_columns weights flops by the direct algorithm, up to four
/// times fewer multiplications by Winograd's under the default rule. `Rule` picks the algorithm of each pass from the
/// geometry: it decides the last bits, so it is part of the network's type.
template <kernels::convolution G, layers::bias Bias = layers::bias::each,
          kernels::algorithm_rule Rule = kernels::preferred_algorithm>
struct conv_layer {
    using input = tensor::shape<G.rows, G.columns, G.channels>;
    using output = tensor::shape<G.out_rows(), G.out_columns(), G.filters>;

    static constexpr std::size_t fan_in = G.kernel_rows * G.kernel_columns * G.group_channels();
    static constexpr std::size_t fan_out = G.kernel_rows * G.kernel_columns * G.group_filters();
    static constexpr std::string_view name = "conv";
    static constexpr auto parameters = [] {
        constexpr tensor::parameter weight{.name = "weight",
                                           .rows = fan_in,
                                           .columns = G.filters,
                                           .fan_in = fan_in,
                                           .fan_out = fan_out,
                                           .window = G.kernel_rows * G.kernel_columns};
        constexpr tensor::parameter added{.name = "bias",
                                          .columns = G.filters,
                                          .fan_in = fan_in,
                                          .fan_out = fan_out,
                                          .initial = tensor::start::zeros,
                                          .decays = false};
        if constexpr (Bias == layers::bias::each)
            return std::array{weight, added};
        else
            return std::array{weight};
    }();
    static constexpr double flops = G.flops();
    /// A thread's share of a larger gradient stays in the caches next to it better than all of it would.
    static constexpr layer_api::traits traits{.needs_y = false,
                                              .deals_lanes = G.weight_count() <= layer_api::most_dealt_weights};

    static constexpr kernels::convolution geometry = G;
    static constexpr window_details details = with_algorithms<G, Rule>(details_of(G));

    [[no_unique_address]] conv_algorithms<G, Rule> by{};

    /// What the printed plan says of it.
    [[nodiscard]] constexpr auto remark() const { return by.remark(); }

    template <class T>
    [[nodiscard]] constexpr std::size_t scratch(std::size_t rows, std::size_t lanes, parallel::team team) const {
        const std::size_t dealt =
            traits.deals_lanes ? dealt_scratch<T>(by.template weights_scratch<T>(rows, {1}), lanes, team) : 0;
        return std::max(by.template scratch<T>(rows, team), dealt);
    }

    void forward(const auto& pass) const noexcept {
        by.forward(pass.x.rows, pass.x.data, pass.w[0].data(), bias_of<Bias>(pass.w), pass.y.data, pass.use);
    }

    void backward(const auto& pass) const {
        const auto gradient_of = [&](parallel::block rows, const auto& dw, const auto& use) {
            by.backward_weights(rows.size(), pass.x.part(rows.first, rows.size()).data,
                                pass.dy.part(rows.first, rows.size()).data, dw[0].data(), bias_of<Bias>(dw), use);
        };
        if constexpr (traits.deals_lanes)
            pass.deal_lanes(gradient_of);
        else
            pass.each_lane([&](parallel::block rows, const auto& dw) { gradient_of(rows, dw, pass.use); });
        if (pass.wants_dx()) by.backward_data(pass.x.rows, pass.dy.data, pass.w[0].data(), pass.dx.data, pass.use);
    }
};

}  // namespace lockstep::layer_api
