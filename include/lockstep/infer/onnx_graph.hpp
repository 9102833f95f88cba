// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A graph of ONNX operations that is being written: the only header that includes the ONNX protocol buffers. Programs
// link lockstep::onnx (CMake) or -lonnx_proto -lprotobuf.
// Tested by tests/unit/infer/onnx.cpp.

// Both forms of the schema have the same names; libraries are built with this one.
#ifndef ONNX_ML
#define ONNX_ML 1
#endif
#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::infer {

/// An attribute of an ONNX operation, such as {"axis", 1} or {"strides", {2, 2}}.
struct onnx_attribute {
    std::string_view name;
    std::variant<std::int64_t, float, std::vector<std::int64_t>> value;

    onnx_attribute(std::string_view called, int number) : name{called}, value{std::int64_t{number}} {}
    onnx_attribute(std::string_view called, std::size_t number)
        : name{called}, value{static_cast<std::int64_t>(number)} {}
    onnx_attribute(std::string_view called, double number) : name{called}, value{static_cast<float>(number)} {}
    onnx_attribute(std::string_view called, std::vector<std::size_t> numbers)
        : name{called}, value{std::vector<std::int64_t>(numbers.begin(), numbers.end())} {}
};

/// Operations and constants, added in the order in which they run. Each value has a name of its own, which the
/// functions return; where the name is taken, a number follows it. The first extent of inputs and outputs is the batch,
/// of any size.
class onnx_graph {
public:
    /// The operations of ONNX 1.12, and its format: readers refuse files of a newer one.
    static constexpr std::int64_t operator_set = 17;
    static constexpr std::int64_t format = 8;

    /// `about`: what readers of the file are told of it.
    onnx_graph(std::string_view name, const std::string& about) {
        model_.set_ir_version(format);
        model_.set_producer_name("lockstep");
        model_.set_doc_string(about);
        auto* const set = model_.add_opset_import();
        set->set_domain("");
        set->set_version(operator_set);
        graph().set_name(std::string{name});
    }

    /// `extents`: after the batch.
    template <class T>
    std::string input(const std::string& name, std::span<const std::size_t> extents) {
        describe<T>(*graph().add_input(), name, extents);
        return name;
    }
    /// Gives a value the name under which it leaves the graph.
    template <class T>
    void output(const std::string& name, const std::string& value, std::span<const std::size_t> extents) {
        auto& nodes = *graph().mutable_node();
        // The last operation has no reader yet; any other value keeps its name for those that it has.
        if (!nodes.empty() && nodes[nodes.size() - 1].output(0) == value)
            nodes[nodes.size() - 1].set_output(0, name);
        else
            add("Identity", name, {value}, {}).set_output(0, name);
        describe<T>(*graph().add_output(), name, extents);
    }

    /// One operation with one output; `at` says where in the network it stands.
    std::string operation(std::string_view type, const std::string& at, const std::vector<std::string>& inputs,
                          const std::vector<onnx_attribute>& attributes = {}) {
        return add(type, unused(core::text(at, ".", type, ".", graph().node_size())), inputs, attributes).output(0);
    }

    /// A constant; no extents: a single number.
    template <class T>
    std::string constant(const std::string& name, std::span<const T> numbers, std::span<const std::size_t> extents) {
        bytes_ += numbers.size_bytes();
        if (bytes_ > most_bytes)
            core::fail(core::text("an ONNX file of more than ", bytes_, " bytes; it holds ", most_bytes, " at most"),
                       "keep the weights in a file of save_weights(), which has no such limit");
        auto& tensor = *graph().add_initializer();
        tensor.set_name(unused(name));
        tensor.set_data_type(element<T>());
        for (const std::size_t extent : extents) tensor.add_dims(static_cast<std::int64_t>(extent));
        tensor.set_raw_data(numbers.data(), numbers.size_bytes());
        return tensor.name();
    }

    [[nodiscard]] std::string serialised() const { return model_.SerializeAsString(); }

private:
    /// Protocol buffers count their bytes in an int; what is no constant takes far less than the difference.
    static constexpr std::size_t most_bytes = std::numeric_limits<std::int32_t>::max() - (std::size_t{16} << 20);

    [[nodiscard]] onnx::GraphProto& graph() { return *model_.mutable_graph(); }

    /// The name, or NAME.1, NAME.2, .. where it is taken: a file with two values of one name is not valid.
    [[nodiscard]] std::string unused(const std::string& name) {
        std::string out = name;
        for (std::size_t number = 1; !names_.insert(out).second; ++number) out = core::text(name, ".", number);
        return out;
    }

    template <class T>
    [[nodiscard]] static constexpr onnx::TensorProto::DataType element() {
        if constexpr (std::is_same_v<T, float>)
            return onnx::TensorProto::FLOAT;
        else if constexpr (std::is_same_v<T, double>)
            return onnx::TensorProto::DOUBLE;
        else
            return onnx::TensorProto::INT64;
    }
    template <class T>
    static void describe(onnx::ValueInfoProto& value, const std::string& name, std::span<const std::size_t> extents) {
        value.set_name(name);
        auto& type = *value.mutable_type()->mutable_tensor_type();
        type.set_elem_type(element<T>());
        type.mutable_shape()->add_dim()->set_dim_param("batch");
        for (const std::size_t extent : extents)
            type.mutable_shape()->add_dim()->set_dim_value(static_cast<std::int64_t>(extent));
    }
    onnx::NodeProto& add(std::string_view type, const std::string& name, const std::vector<std::string>& inputs,
                         const std::vector<onnx_attribute>& attributes) {
        auto& node = *graph().add_node();
        node.set_op_type(std::string{type});
        node.set_name(name);
        for (const auto& input : inputs) node.add_input(input);
        node.add_output(name);
        for (const auto& one : attributes) {
            auto& attribute = *node.add_attribute();
            attribute.set_name(std::string{one.name});
            if (const auto* whole = std::get_if<std::int64_t>(&one.value)) {
                attribute.set_type(onnx::AttributeProto::INT);
                attribute.set_i(*whole);
            } else if (const auto* number = std::get_if<float>(&one.value)) {
                attribute.set_type(onnx::AttributeProto::FLOAT);
                attribute.set_f(*number);
            } else {
                attribute.set_type(onnx::AttributeProto::INTS);
                for (const std::int64_t i : std::get<2>(one.value)) attribute.add_ints(i);
            }
        }
        return node;
    }

    onnx::ModelProto model_;
    std::unordered_set<std::string> names_;  // of constants and operations; those of input and output have no point
    std::size_t bytes_ = 0;
};

}  // namespace lockstep::infer
