// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The layers of the library as ONNX operations.
// Tested by tests/unit/infer/onnx.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/infer/onnx_node.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv_layer.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/depthwise_layer.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/join.hpp"
#include "lockstep/layers/layer_norm.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/layers/shortcut.hpp"

namespace lockstep::infer {

/// The layer writes itself.
template <class L, class Node>
concept WritesOnnx = requires(const L& layer, Node& node) {
    layer.write_onnx(node);
};

/// How a layer is written: `static void write(const L&, auto& node)`. A specialisation with `any_order = true` takes
/// features of an image also in the order of ONNX (see onnx_value), a join where all of its inputs have one order; what
/// it gives then is in that order, too. With `ordering = true` as well each input may have another order, and what it
/// gives is in the order of the network.
template <class L>
struct onnx_layer {
    static constexpr bool is_unknown = true;
};

/// The layer has a specialisation of onnx_layer, or a member write_onnx(node).
template <class L, class Node>
inline constexpr bool has_onnx = WritesOnnx<L, Node> || !requires {
    onnx_layer<L>::is_unknown;
};

template <std::size_t Inputs, std::size_t Outputs, std::size_t Whole>
struct onnx_layer<layer_api::dense_layer<Inputs, Outputs, Whole>> {
    static constexpr bool any_order = true, ordering = true;

    template <class T, class L>
    static void write(const L&, onnx_node<T, L>& node) {
        const std::size_t channels = node.input().channels;
        const auto weight =
            channels == 1 ? node.template constant<T>("weight", node.parameter(0), {Inputs, Outputs})
                          : node.template constant<T>("weight", channels_first<T>(node.parameter(0), channels, Outputs),
                                                      {Inputs, Outputs});
        node.gives(node.operation("Gemm", {node.x(), weight, node.vector("bias", node.parameter(1))}));
    }
};

namespace detail {

/// y = x * W + b; returns its name. Weights are kernel rows x kernel columns x channels of a group x filters here, and
/// filters x channels of a group x kernel rows x kernel columns in ONNX.
template <kernels::convolution G, layers::bias Bias, class T, class L>
std::string write_convolution(onnx_node<T, L>& node) {
    const std::span<const T> weight = node.parameter(0);
    std::vector<T> turned(weight.size());
    const std::size_t places = G.kernel_rows * G.kernel_columns, channels = G.group_channels();
    for (std::size_t place = 0; place < places; ++place)
        for (std::size_t channel = 0; channel < channels; ++channel)
            for (std::size_t filter = 0; filter < G.filters; ++filter)
                turned[(filter * channels + channel) * places + place] =
                    weight[(place * channels + channel) * G.filters + filter];
    std::vector<std::string> inputs{node.x(),
                                    node.template constant<T>("weight", std::span<const T>{turned},
                                                              {G.filters, channels, G.kernel_rows, G.kernel_columns})};
    if constexpr (Bias == layers::bias::each) inputs.push_back(node.vector("bias", node.parameter(1)));
    return node.operation("Conv", inputs,
                          {{"kernel_shape", {G.kernel_rows, G.kernel_columns}},
                           {"strides", {G.stride_rows, G.stride_columns}},
                           {"pads", {G.pad_top, G.pad_left, G.pad_bottom, G.pad_right}},
                           {"dilations", {G.dilation_rows, G.dilation_columns}},
                           {"group", G.groups}});
}

template <kernels::pooling G>
std::vector<onnx_attribute> window_of() {
    return {{"kernel_shape", {G.kernel_rows, G.kernel_columns}},
            {"strides", {G.stride_rows, G.stride_columns}},
            {"pads", {G.pad_top, G.pad_left, G.pad_bottom, G.pad_right}}};
}

/// Feature i of the output depends on feature i of the input only.
struct onnx_elementwise {
    static constexpr bool any_order = true, ordering = false;
};

/// An operation on channels, which ONNX has as the first extent of an image, while they are the last one of any other
/// shape: f(value) for an image or a row of features; other shapes S become images of one column around it.
template <class S>
std::string over_channels(auto& node, const auto& f) {
    if constexpr (S::rank == 3) return f(node.x());
    constexpr std::size_t channels = S::extents.back(), pixels = S::size / channels;
    const auto image = node.operation("Reshape", {node.x(), node.whole_numbers("image", {0, pixels, channels, 1})});
    const auto turn = [&](const std::string& value) {
        return node.operation("Transpose", {value}, {{"perm", {0, 2, 1, 3}}});
    };
    std::vector<std::size_t> extents{0};
    for (const std::size_t extent : S::extents) extents.push_back(extent);
    return node.operation("Reshape", {turn(f(turn(image))), node.whole_numbers("extents", extents)});
}

}  // namespace detail

template <kernels::convolution G, layers::bias Bias, kernels::algorithm_rule Rule>
struct onnx_layer<layer_api::conv_layer<G, Bias, Rule>> {
    static void write(const auto&, auto& node) { node.gives(detail::write_convolution<G, Bias>(node)); }
};
template <kernels::convolution G, layers::bias Bias>
struct onnx_layer<layer_api::depthwise_layer<G, Bias>> {
    static void write(const auto&, auto& node) { node.gives(detail::write_convolution<G, Bias>(node)); }
};
template <kernels::pooled_convolution G, layers::bias Bias>
struct onnx_layer<layer_api::conv_max_pool_layer<G, Bias>> {
    static void write(const auto&, auto& node) {
        node.gives(node.operation(
            "MaxPool", {detail::write_convolution<G.conv, Bias>(node)},
            {{"kernel_shape", {G.window_rows, G.window_columns}}, {"strides", {G.window_rows, G.window_columns}}}));
    }
};

template <kernels::pooling G>
struct onnx_layer<layer_api::max_pool_layer<G>> {
    static void write(const auto&, auto& node) {
        node.gives(node.operation("MaxPool", {node.x()}, detail::window_of<G>()));
    }
};
template <kernels::pooling G>
struct onnx_layer<layer_api::mean_pool_layer<G>> {
    static void write(const auto&, auto& node) {
        node.gives(node.operation("AveragePool", {node.x()}, detail::window_of<G>()));
    }
};
template <kernels::pooling G>
struct onnx_layer<layer_api::global_mean_pool_layer<G>> {
    static void write(const auto&, auto& node) {
        node.gives(node.operation("Flatten", {node.operation("GlobalAveragePool", {node.x()})}, {{"axis", 1}}));
    }
};

template <tensor::Shape S, layer_api::epilogue Epilogue>
struct onnx_layer<layer_api::batch_norm_layer<S, Epilogue>> {
    static_assert(Epilogue == layer_api::epilogue::none);
    template <class T, class L>
    static void write(const L& layer, onnx_node<T, L>& node) {
        // ONNX has epsilon as a float: in double the rest of it is part of the variance.
        const double rest = layer.epsilon - static_cast<double>(static_cast<float>(layer.epsilon));
        std::vector<T> variance(node.statistic(1).begin(), node.statistic(1).end());
        if constexpr (std::is_same_v<T, double>)
            for (T& one : variance) one += rest;
        const std::vector<std::string> parameters{
            node.vector("scale", node.parameter(0)), node.vector("shift", node.parameter(1)),
            node.vector("mean", node.statistic(0)), node.vector("variance", std::span<const T>{variance})};
        const auto normalise = [&](const std::string& x) {
            return node.operation("BatchNormalization", {x, parameters[0], parameters[1], parameters[2], parameters[3]},
                                  {{"epsilon", layer.epsilon}});
        };
        // A row of features is one channel each in ONNX, too.
        node.gives(S::rank == 1 ? normalise(node.x()) : detail::over_channels<S>(node, normalise));
    }
};

/// Scale and shift belong to each number of the sample. LayerNormalization computes moments in float, and has its
/// epsilon as one: in double it is written as its operations.
template <tensor::Shape S>
struct onnx_layer<layer_api::layer_norm_layer<S>> {
    template <class T, class L>
    static void write(const L& layer, onnx_node<T, L>& node) {
        std::vector<std::size_t> extents = node.input().extents;
        const auto parameter = [&](std::string_view name, std::size_t number) {
            const std::span<const T> numbers = node.parameter(number);
            if (extents.size() != 3) return node.template constant<T>(name, numbers, extents);
            return node.template constant<T>(name, channels_first<T>(numbers, extents[2]),
                                             {extents[2], extents[0], extents[1]});
        };
        const auto scale = parameter("scale", 0), shift = parameter("shift", 1);
        if constexpr (std::is_same_v<T, float>) {
            node.gives(node.operation("LayerNormalization", {node.x(), scale, shift},
                                      {{"axis", 1}, {"epsilon", layer.epsilon}}));
        } else {
            std::vector<std::size_t> axes(extents.size());
            std::iota(axes.begin(), axes.end(), std::size_t{1});
            const auto mean = [&](const std::string& of) {
                return node.operation("ReduceMean", {of}, {{"axes", axes}, {"keepdims", 1}});
            };
            const auto centred = node.operation("Sub", {node.x(), mean(node.x())});
            const auto variance = mean(node.operation("Mul", {centred, centred}));
            const auto sum = node.operation("Add", {variance, node.number("epsilon", layer.epsilon)});
            const auto normal = node.operation("Div", {centred, node.operation("Sqrt", {sum})});
            node.gives(node.operation("Add", {node.operation("Mul", {normal, scale}), shift}));
        }
    }
};

/// ONNX divides its alpha by the window, and takes images only.
template <std::size_t Window, tensor::Shape S>
struct onnx_layer<layer_api::local_response_norm_layer<Window, S>> {
    static void write(const auto& layer, auto& node) {
        // Attributes are floats. ONNX Runtime refuses an LRN in which one of these is 0.
        const double alpha = layer.alpha * static_cast<double>(Window);
        if (alpha > static_cast<double>(std::numeric_limits<float>::max()))
            core::fail(core::text("local_response_norm<", Window, "> has alpha = ", layer.alpha,
                                  ", and ONNX stores alpha x window as a float"),
                       "take a smaller alpha");
        if (static_cast<float>(layer.beta) == 0) return node.gives(node.x());
        if (static_cast<float>(alpha) == 0)
            return node.gives(
                node.operation("Mul", {node.x(), node.number("factor", std::pow(layer.offset, -layer.beta))}));
        node.gives(detail::over_channels<S>(node, [&](const std::string& x) {
            return node.operation("LRN", {x},
                                  {{"size", Window}, {"alpha", alpha}, {"beta", layer.beta}, {"bias", layer.offset}});
        }));
    }
};

template <class S>
struct onnx_layer<layer_api::activation_layer<layers::relu, S>> : detail::onnx_elementwise {
    static void write(const auto&, auto& node) { node.gives(node.operation("Relu", {node.x()})); }
};
template <class S>
struct onnx_layer<layer_api::activation_layer<layers::tanh, S>> : detail::onnx_elementwise {
    static void write(const auto&, auto& node) { node.gives(node.operation("Tanh", {node.x()})); }
};
template <class S>
struct onnx_layer<layer_api::activation_layer<layers::sigmoid, S>> : detail::onnx_elementwise {
    static void write(const auto&, auto& node) { node.gives(node.operation("Sigmoid", {node.x()})); }
};
/// The form with tanh is an operation of its own in later operator sets only: x (1 + tanh(x (a + b x^2))) / 2.
template <class S>
struct onnx_layer<layer_api::activation_layer<layers::gelu, S>> : detail::onnx_elementwise {
    static void write(const auto&, auto& node) {
        const double factor = 0.5 * std::numbers::sqrt2 * 2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
        const auto square = node.operation("Mul", {node.x(), node.x()});
        const auto cubic = node.operation("Mul", {square, node.number("b", factor * 0.044715)});
        const auto factor_of_x = node.operation("Add", {cubic, node.number("a", factor)});
        const auto bent = node.operation("Tanh", {node.operation("Mul", {node.x(), factor_of_x})});
        const auto share = node.operation("Add", {bent, node.number("one", 1)});
        const auto twice = node.operation("Mul", {node.x(), share});
        node.gives(node.operation("Mul", {twice, node.number("half", 0.5)}));
    }
};

/// Predictions drop nothing.
template <class S>
struct onnx_layer<layer_api::dropout_layer<S>> : detail::onnx_elementwise {
    static void write(const auto&, auto& node) { node.gives(node.x()); }
};

template <class S, std::size_t Channels, std::size_t Stride>
struct onnx_layer<layer_api::shortcut_layer<S, Channels, Stride>> {
    static void write(const auto&, auto& node) {
        using layer = layer_api::shortcut_layer<S, Channels, Stride>;
        auto value = node.x();
        if constexpr (Stride > 1)
            value = node.operation("Slice",
                                   {value, node.whole_numbers("starts", {0, 0}),
                                    node.whole_numbers("ends", {S::extents[0], S::extents[1]}),
                                    node.whole_numbers("axes", {2, 3}), node.whole_numbers("steps", {Stride, Stride})});
        if constexpr (Channels > layer::channels)
            value = node.operation(
                "Pad", {value, node.whole_numbers("pads", {0, layer::before, 0, 0, 0,
                                                           Channels - layer::channels - layer::before, 0, 0})});
        node.gives(value);
    }
};

/// The values from the left, as the layer adds them.
template <std::size_t Count, tensor::Shape S>
struct onnx_layer<layer_api::add_layer<Count, S>> {
    static void write(const auto&, auto& node) {
        auto sum = node.x(0);
        for (std::size_t i = 1; i < Count; ++i) sum = node.operation("Add", {sum, node.x(i)});
        node.gives(sum);
    }
};
/// Channels are the first extent of an image, and the last one of other shapes.
template <class First, class... Others>
struct onnx_layer<layer_api::concatenate_layer<First, Others...>> {
    static void write(const auto&, auto& node) {
        std::vector<std::string> all;
        for (std::size_t i = 0; i <= sizeof...(Others); ++i) all.push_back(node.x(i));
        node.gives(node.operation("Concat", all, {{"axis", First::rank == 3 ? 1 : First::rank}}));
    }
};

}  // namespace lockstep::infer
