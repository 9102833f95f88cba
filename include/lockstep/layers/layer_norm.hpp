// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Layer normalisation (Ba, Kiros, Hinton 2016). Models LayerSpec.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/normalisation/row_moments.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = (x - mean) / sqrt(variance + epsilon) scale + shift, where mean and (biased) variance are those of all numbers
/// of the sample, and scale and shift belong to each of them. Training and inference are the same. Keeps 2 numbers for
/// each sample. Cost: forward reads x and writes y once; backward reads x and dy twice, once for the parameters.
template <tensor::Shape S>
struct layer_norm_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "layer_norm";
    static constexpr std::array parameters{
        tensor::parameter{.name = "scale", .columns = S::size, .initial = tensor::start::ones, .decays = false},
        tensor::parameter{.name = "shift", .columns = S::size, .initial = tensor::start::zeros, .decays = false},
    };
    static constexpr double flops = 7.0 * static_cast<double>(S::size);
    static constexpr layer_api::traits traits{.needs_y = false, .saved_numbers = 2};
    static_assert(sizeof(kernels::row_moments<float>) == 2 * sizeof(float));

    double epsilon = 1e-5;

    template <class Pass>
    void forward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        kernels::normalise_rows(
            pass.x.rows, S::size, pass.x.data, pass.w[0].data(), pass.w[1].data(), epsilon, pass.y.data,
            pass.mode == mode::training ? reinterpret_cast<kernels::row_moments<T>*>(pass.saved.data()) : nullptr,
            pass.use.team);
    }

    template <class Pass>
    void backward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        const auto* moments = reinterpret_cast<const kernels::row_moments<T>*>(pass.saved.data());
        pass.each_lane([&](parallel::block rows, const auto& gradient) {
            kernels::normalise_rows_gradients(rows.size(), S::size, pass.x.part(rows.first, rows.size()).data,
                                              pass.dy.part(rows.first, rows.size()).data, moments + rows.first,
                                              gradient[0].data(), gradient[1].data(), pass.use.team);
        });
        if (pass.wants_dx())
            kernels::normalise_rows_backward(pass.x.rows, S::size, pass.x.data, pass.dy.data, pass.w[0].data(), moments,
                                             pass.dx.data, pass.use.team);
    }
};

/// x - mean of a single number is 0, and so is every gradient.
template <class Spec, class Input>
inline constexpr bool has_several_numbers = Input::size > 1;

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// layer_norm{}: each sample by itself.
struct layer_norm {
    double epsilon = 1e-5;

    [[nodiscard]] std::string settings() const { return core::text("epsilon=", epsilon); }
    /// Throws core::error unless epsilon lies in [1e-37, 1e37]: as a float it is neither 0 nor infinite.
    void check() const {
        if (!(epsilon >= 1e-37 && epsilon <= 1e37))
            core::fail(core::text("layer_norm has epsilon = ", epsilon, ", outside [1e-37, 1e37]"),
                       "take a small positive number such as 1e-5");
    }

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::has_several_numbers<layer_norm, Input>,
                      "lockstep: layer_norm over a single number of a sample is its shift, whatever the number; use at "
                      "least two, or none");
        if constexpr (layer_api::has_several_numbers<layer_norm, Input>)
            return layer_api::layer_norm_layer<Input>{.epsilon = epsilon};
        else
            return layer_api::unbound<Input>{};
    }
};

}  // namespace lockstep::layers
