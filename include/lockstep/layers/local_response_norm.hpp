// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Local response normalisation across channels, as in AlexNet. Models LayerSpec.

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/normalisation/local_response.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/layers/window_details.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = x / (offset + alpha sum of x^2)^beta, the sum over the Window channels around, for each pixel; backward computes
/// the powers again. Squares are those of T: from |x| = 1.8e19 on as float, y is 0 in the windows of such an x.
template <std::size_t Window, tensor::Shape S>
struct local_response_norm_layer {
    using input = S;
    using output = S;
    static constexpr std::size_t channels = S::extents.back();
    static constexpr std::string_view name = "local_response_norm";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = static_cast<double>((Window + 5) * S::size);
    static constexpr layer_api::traits traits{.needs_y = false};
    static constexpr window_details details{.channels = Window};

    double alpha = 1e-4;
    double beta = 0.75;
    double offset = 2;

    template <class T>
    [[nodiscard]] static constexpr std::size_t scratch(std::size_t, std::size_t, parallel::team team) {
        return kernels::local_response_scratch<T>(channels, Window, team);
    }

    void forward(const auto& pass) const noexcept {
        kernels::local_response_forward(numbers(), pass.x.size() / channels, channels, pass.x.data, pass.y.data,
                                        pass.use);
    }
    void backward(const auto& pass) const noexcept {
        if (pass.wants_dx())
            kernels::local_response_backward(numbers(), pass.x.size() / channels, channels, pass.x.data, pass.dy.data,
                                             pass.dx.data, pass.use);
    }

private:
    [[nodiscard]] kernels::local_response numbers() const noexcept { return {Window, alpha, beta, offset}; }
};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// local_response_norm<5>{}: with the numbers of Krizhevsky, Sutskever, Hinton (2012). `alpha` is that of the paper:
/// PyTorch and Caffe divide theirs by the window.
template <std::size_t Window = 5>
struct local_response_norm {
    static_assert(Window % 2 == 1, "lockstep: the window of local_response_norm is an odd number of channels");

    double alpha = 1e-4;
    double beta = 0.75;
    double offset = 2;

    [[nodiscard]] std::string settings() const {
        return core::text("alpha=", alpha, " beta=", beta, " offset=", offset);
    }
    /// Throws core::error unless alpha lies in [0, 1e37], beta in (0, 1e37] and offset in [1e-37, 1e37], and 2 alpha
    /// beta and offset^-beta are at most 1e37: these are factors of zeros, which have to be finite as floats.
    void check() const {
        const auto values =
            core::text("local_response_norm has alpha = ", alpha, ", beta = ", beta, " and offset = ", offset);
        constexpr double most = 1e37;
        if (!(alpha >= 0 && alpha <= most && beta > 0 && beta <= most && offset >= 1e-37 && offset <= most))
            core::fail(values,
                       "take alpha in [0, 1e37], beta in (0, 1e37] and offset in [1e-37, 1e37], such as 1e-4, "
                       "0.75 and 2");
        if (!(2 * alpha * beta <= most && std::pow(offset, -beta) <= most))
            core::fail(core::text(values, ", so that 2 alpha beta or offset^-beta is above 1e37"),
                       "take a larger offset, or a smaller alpha or beta, such as 2, 1e-4 and 0.75");
    }

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::local_response_norm_layer<Window, Input>{.alpha = alpha, .beta = beta, .offset = offset};
    }
};

}  // namespace lockstep::layers
