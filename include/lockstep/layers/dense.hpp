// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The fully connected layer. Models LayerSpec; a model partition can split it over its output features.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/matrix/gemm_lanes.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = x W + b: x is rows x Inputs, W is Inputs x Outputs. `Whole` = outputs of the uncut layer.
/// Cost per sample and pass: 2 Inputs Outputs flops. The lane tree is walked inside the register tile of dW.
template <std::size_t Inputs, std::size_t Outputs, std::size_t Whole = Outputs>
struct dense_layer {
    using input = tensor::shape<Inputs>;
    using output = tensor::shape<Outputs>;
    template <std::size_t Shards>
    [[nodiscard]] constexpr auto shard() const noexcept {
        return dense_layer<Inputs, Whole / Shards, Whole>{};
    }

    static constexpr std::string_view name = "dense";
    static constexpr std::array parameters{
        tensor::parameter{.name = "weight", .rows = Inputs, .columns = Outputs, .fan_in = Inputs, .fan_out = Whole},
        tensor::parameter{.name = "bias",
                          .columns = Outputs,
                          .fan_in = Inputs,
                          .fan_out = Whole,
                          .initial = tensor::start::zeros,
                          .decays = false},
    };
    static constexpr double flops = 2.0 * Inputs * Outputs;
    static constexpr layer_api::traits traits{.needs_y = false, .adds_lanes = true, .has_factors = true};

    template <class T>
    [[nodiscard]] static constexpr std::size_t scratch(std::size_t rows, std::size_t lanes, parallel::team team) {
        return std::max({kernels::gemm_scratch<T>(rows, Outputs, Inputs, team),
                         kernels::gemm_scratch<T>(rows, Inputs, Outputs, team),
                         kernels::gemm_lanes_scratch<T>(lanes, rows, Inputs, Outputs, team),
                         kernels::column_sums_lanes_scratch<T>(lanes, Outputs, team)});
    }

    template <class Pass>
    void forward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        kernels::gemm<T>(kernels::transpose::no, kernels::transpose::no, pass.x.rows, Outputs, Inputs, pass.x.data,
                         Inputs, pass.w[0].data(), Outputs, pass.y.data, Outputs, pass.w[1].data(), pass.use);
    }

    template <class Pass>
    void backward(const Pass& pass) const noexcept {
        using T = typename Pass::value_type;
        const std::size_t nodes = pass.wants_gradient() ? pass.lanes->trees().size() : 0;
        for (std::size_t node = 0; node < nodes; ++node) {
            const auto rows = pass.lanes->blocks(pass.lanes->trees()[node]);
            const auto dw = pass.gradient_of(node);
            kernels::gemm_lanes<T>(rows, Inputs, Outputs, pass.x.data, Inputs, pass.dy.data, Outputs, dw[0].data(),
                                   Outputs, pass.use);
            kernels::column_sums_lanes<T>(rows, Outputs, pass.dy.data, Outputs, dw[1].data(), pass.use);
        }
        if (pass.wants_dx())
            kernels::gemm<T>(kernels::transpose::no, kernels::transpose::yes, pass.x.rows, Inputs, Outputs,
                             pass.dy.data, Outputs, pass.w[0].data(), Outputs, pass.dx.data, Inputs, nullptr, pass.use);
    }
};

/// A sample is one row of features.
template <class Spec, class Input>
inline constexpr bool is_row_of_features = tensor::FlatShape<Input>;

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// dense<256>{}: 256 outputs, as many inputs as the layer before it has.
template <std::size_t Outputs>
struct dense {
    static_assert(Outputs > 0, "lockstep: a dense layer has at least one output");

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        static_assert(layer_api::is_row_of_features<dense, Input>,
                      "lockstep: dense takes a row of features; put flatten{} before it");
        if constexpr (Outputs > 0 && layer_api::is_row_of_features<dense, Input>)
            return layer_api::dense_layer<Input::size, Outputs>{};
        else
            return layer_api::unbound<Input>{};
    }
};

}  // namespace lockstep::layers
