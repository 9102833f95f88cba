// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The convolution layer whose algorithms come at run time, from a file that the plan names: conv with the rule `tuned`.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/kernels/convolution/algorithm_choice.hpp"
#include "lockstep/layers/conv.hpp"

namespace lockstep::layers {

/// The rule of convolutions that take their algorithms from `plan::algorithms`: conv<64, 3, conv_options{.padding = 1},
/// tuned>{}, models::resnet<20, tuned>, or tuned(net) for any network. Without a file they take those of the default
/// rule. All algorithms are compiled, once for an element type.
[[nodiscard]] constexpr kernels::algorithm tuned(const kernels::convolution& g,
                                                 kernels::convolution_pass pass) noexcept {
    return kernels::preferred_algorithm(g, pass);
}

}  // namespace lockstep::layers

namespace lockstep::layer_api {

/// What the spec of such a layer holds: a value, so that networks of one type differ by their numbers.
template <>
struct conv_settings<layers::tuned> {
    std::optional<kernels::convolution_choice> choice{};  ///< none: by the default rule

    /// Part of the recipe.
    [[nodiscard]] std::string algorithms() const {
        if (!choice) return "default rule\n";
        std::string out;
        for (const auto& pass : choice->passes)
            out += core::text(kernels::name(pass.which), "\n");  // micro-batches change no bit
        return out;
    }
};

/// The passes by the algorithms that were chosen, forward and data gradient a micro-batch at a time.
template <kernels::convolution G>
struct conv_algorithms<G, layers::tuned> {
    using pass = kernels::convolution_pass;

    kernels::convolution_choice choice = kernels::choice_of(layers::tuned, G);

    constexpr conv_algorithms() = default;
    constexpr explicit conv_algorithms(const conv_settings<layers::tuned>& from)
        : choice{from.choice.value_or(kernels::choice_of(layers::tuned, G))} {}

    [[nodiscard]] std::string remark() const {
        return core::text(to_text(choice[pass::forward]), " / ", to_text(choice[pass::backward_data]), " / ",
                          to_text(choice[pass::backward_weights]));
    }

    template <class T>
    [[nodiscard]] constexpr std::size_t scratch(std::size_t rows, parallel::team team) const {
        const auto& forward = choice[pass::forward];
        const auto& data = choice[pass::backward_data];
        return std::max({kernels::convolve_forward_scratch<T>(forward.which, G, forward.micro.longest(rows), team),
                         kernels::convolve_backward_data_scratch<T>(data.which, G, data.micro.longest(rows), team),
                         weights_scratch<T>(rows, team)});
    }
    template <class T>
    [[nodiscard]] constexpr std::size_t weights_scratch(std::size_t rows, parallel::team team) const {
        return kernels::convolve_backward_weights_scratch<T>(choice[pass::backward_weights].which, G, rows, team);
    }
    template <class T>
    void forward(std::size_t rows, const T* x, const T* w, const T* bias, T* y,
                 kernels::resources<T> use) const noexcept {
        const auto& by = choice[pass::forward];
        by.micro.each(rows, [&](std::size_t first, std::size_t count) {
            kernels::convolve_forward(by.which, G, count, x + first * G.in_size(), w, bias, y + first * G.out_size(),
                                      use);
        });
    }
    template <class T>
    void backward_data(std::size_t rows, const T* dy, const T* w, T* dx, kernels::resources<T> use) const noexcept {
        const auto& by = choice[pass::backward_data];
        by.micro.each(rows, [&](std::size_t first, std::size_t count) {
            kernels::convolve_backward_data(by.which, G, count, dy + first * G.out_size(), w, dx + first * G.in_size(),
                                            use);
        });
    }
    template <class T>
    void backward_weights(std::size_t rows, const T* x, const T* dy, T* dw, T* dbias,
                          kernels::resources<T> use) const noexcept {
        kernels::convolve_backward_weights(choice[pass::backward_weights].which, G, rows, x, dy, dw, dbias, use);
    }
};

}  // namespace lockstep::layer_api
