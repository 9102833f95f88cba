// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Activations that work element by element: relu, tanh, sigmoid, gelu. All model LayerSpec.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/layers/traits.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = Function::forward(x), dx = Function::backward(y, dy), or backward(x, dy) for a function that needs its input.
template <class Function, tensor::Shape S>
struct activation_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = Function::name;
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = static_cast<double>(S::size);
    static constexpr layer_api::traits traits{.is_elementwise = true,
                                              .needs_x = Function::needs_x,
                                              .needs_y = !Function::needs_x,
                                              .in_place = !Function::needs_x};
    [[nodiscard]] static constexpr epilogue_part as_epilogue(std::type_identity<activation_layer>) noexcept {
        return layer_api::as_epilogue<Function>;
    }
    static constexpr std::size_t grain = 4096;

    void forward(const auto& pass) const noexcept {
        parallel::for_blocks(pass.use.team, pass.x.size(), grain, [&](parallel::block part) {
            Function::forward(pass.x.all().subspan(part.first, part.size()),
                              pass.y.all().subspan(part.first, part.size()));
        });
    }
    void backward(const auto& pass) const noexcept {
        if (!pass.wants_dx()) return;
        const auto known = [&] {
            if constexpr (traits.needs_x)
                return pass.x.all();
            else
                return pass.y.all();
        }();
        parallel::for_blocks(pass.use.team, pass.dx.size(), grain, [&](parallel::block part) {
            Function::backward(known.subspan(part.first, part.size()), pass.dy.all().subspan(part.first, part.size()),
                               pass.dx.all().subspan(part.first, part.size()));
        });
    }
};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// y = max(x, 0), and NaN stays NaN.
struct relu {
    static constexpr std::string_view name = "relu";
    static constexpr bool needs_x = false;
    [[nodiscard]] static constexpr layer_api::epilogue_part as_epilogue(std::type_identity<relu>) noexcept {
        return layer_api::epilogue_part::relu;
    }
    template <class T>
    static void forward(std::span<const T> x, std::span<T> y) noexcept {
        kernels::relu_forward(x, y);
    }
    template <class T>
    static void backward(std::span<const T> y, std::span<const T> dy, std::span<T> dx) noexcept {
        kernels::relu_backward(y, dy, dx);
    }
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::activation_layer<relu, Input>{};
    }
};

/// y = tanh(x).
struct tanh {
    static constexpr std::string_view name = "tanh";
    static constexpr bool needs_x = false;
    template <class T>
    static void forward(std::span<const T> x, std::span<T> y) noexcept {
        kernels::tanh_forward(x, y);
    }
    template <class T>
    static void backward(std::span<const T> y, std::span<const T> dy, std::span<T> dx) noexcept {
        kernels::tanh_backward(y, dy, dx);
    }
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::activation_layer<tanh, Input>{};
    }
};

/// y = 1 / (1 + exp(-x)).
struct sigmoid {
    static constexpr std::string_view name = "sigmoid";
    static constexpr bool needs_x = false;
    template <class T>
    static void forward(std::span<const T> x, std::span<T> y) noexcept {
        kernels::sigmoid_forward(x, y);
    }
    template <class T>
    static void backward(std::span<const T> y, std::span<const T> dy, std::span<T> dx) noexcept {
        kernels::sigmoid_backward(y, dy, dx);
    }
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::activation_layer<sigmoid, Input>{};
    }
};

/// y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2: the form of GELU with tanh (Hendrycks, Gimpel 2016).
struct gelu {
    static constexpr std::string_view name = "gelu";
    static constexpr bool needs_x = true;
    template <class T>
    static void forward(std::span<const T> x, std::span<T> y) noexcept {
        kernels::gelu_forward(x, y);
    }
    template <class T>
    static void backward(std::span<const T> x, std::span<const T> dy, std::span<T> dx) noexcept {
        kernels::gelu_backward(x, dy, dx);
    }
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::activation_layer<gelu, Input>{};
    }
};

}  // namespace lockstep::layers
