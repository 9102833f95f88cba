// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a layer is handed to write itself as ONNX operations.
// Tested by tests/unit/infer/onnx.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/infer/onnx_graph.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/tensor/parameter.hpp"

namespace lockstep::infer {

/// rows x columns x channels numbers in the order channels x rows x columns, in which ONNX has images: `inner` numbers
/// for each of them stay together.
template <class T>
[[nodiscard]] std::vector<T> channels_first(std::span<const T> numbers, std::size_t channels, std::size_t inner = 1) {
    const std::size_t pixels = numbers.size() / (channels * inner);
    std::vector<T> out(numbers.size());
    for (std::size_t pixel = 0; pixel < pixels; ++pixel)
        for (std::size_t channel = 0; channel < channels; ++channel)
            std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>((pixel * channels + channel) * inner), inner,
                        out.begin() + static_cast<std::ptrdiff_t>((channel * pixels + pixel) * inner));
    return out;
}

/// A value of the network in an ONNX graph. Images, rows x columns x channels here, are batch x channels x rows x
/// columns there; other shapes stay as they are.
struct onnx_value {
    std::string name;
    std::vector<std::size_t> extents;  ///< as in the network, without the batch
    /// Features of an image that have not been put into the order of the network: its channels, else 1. Then they are
    /// in the order of ONNX, all of a channel side by side.
    std::size_t channels = 1;

    [[nodiscard]] bool is_image() const noexcept { return extents.size() == 3; }
};

/// One layer `L` with its parameters. A layer of a user has a member
///
///     void write_onnx(auto& node) const {
///         node.gives(node.operation("Softplus", {node.x()}));
///     }
///
/// or, where it cannot be changed, a specialisation of infer::onnx_layer (see onnx_layers.hpp).
template <class T, class L>
class onnx_node {
public:
    using value_type = T;
    using layer = L;

    onnx_node(onnx_graph& graph, std::string at, std::vector<onnx_value> inputs, std::span<const T> weights,
              std::span<const T> statistics)
        : graph_{&graph},
          at_{std::move(at)},
          inputs_{std::move(inputs)},
          weights_{weights.data()},
          statistics_{statistics.data()} {}

    /// The name of a value that the layer reads: batch x channels x rows x columns of an image, else batch x the
    /// extents.
    [[nodiscard]] const std::string& x(std::size_t input = 0) const { return inputs_[input].name; }
    [[nodiscard]] const onnx_value& input(std::size_t number = 0) const { return inputs_[number]; }
    [[nodiscard]] std::size_t inputs() const noexcept { return inputs_.size(); }

    /// The numbers of a parameter, or of a running statistic, in the order of the network.
    [[nodiscard]] std::span<const T> parameter(std::size_t number) const {
        return layer_api::parameters<const T, L>{weights_}[number];
    }
    [[nodiscard]] std::span<const T> statistic(std::size_t number) const {
        return layer_api::statistics<const T, L>{statistics_}[number];
    }

    /// Numbers that belong to the layer, as a value with these extents.
    template <class U>
    std::string constant(std::string_view name, std::span<const U> numbers, std::vector<std::size_t> extents) {
        return graph_->constant<U>(core::text(at_, ".", name), numbers, extents);
    }
    /// The same of one parameter or statistic as it lies: one extent.
    std::string vector(std::string_view name, std::span<const T> numbers) {
        return constant<T>(name, numbers, {numbers.size()});
    }
    /// A single number.
    std::string number(std::string_view name, double value) {
        const T one = static_cast<T>(value);
        return constant<T>(name, std::span{&one, 1}, {});
    }
    /// Whole numbers, such as extents: of Reshape, 0 stands for the batch.
    std::string whole_numbers(std::string_view name, const std::vector<std::size_t>& numbers) {
        const std::vector<std::int64_t> copy(numbers.begin(), numbers.end());
        return constant<std::int64_t>(name, std::span<const std::int64_t>{copy}, {copy.size()});
    }

    /// Adds an operation of ONNX (operator set onnx_graph::operator_set); returns the name of its first output.
    std::string operation(std::string_view type, const std::vector<std::string>& inputs,
                          const std::vector<onnx_attribute>& attributes = {}) {
        return graph_->operation(type, at_, inputs, attributes);
    }
    /// The value that the layer gives.
    void gives(std::string name) { given_ = std::move(name); }
    [[nodiscard]] const std::string& given() const noexcept { return given_; }

private:
    onnx_graph* graph_;
    std::string at_;
    std::vector<onnx_value> inputs_;
    const T* weights_;
    const T* statistics_;
    std::string given_;
};

}  // namespace lockstep::infer
