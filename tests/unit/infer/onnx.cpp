// SPDX-License-Identifier: BSD-3-Clause
// What a file is and what it refuses; that others read the same outputs from it is shown by tests/onnx.
#include "lockstep/infer/onnx.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>


namespace ls = lockstep;
using namespace ls::layers;

namespace {

constexpr auto net = ls::sequential{ls::input<3, 2, 2>, flatten{}, dense<4>{}, batch_norm{}, relu{}};
const std::vector<float> weights(12 * 4 + 4 + 8, 0.5F), statistics(8, 1.0F);

onnx::ModelProto parsed(const std::string& bytes) {
    onnx::ModelProto out;
    REQUIRE(out.ParseFromString(bytes));
    return out;
}
template <class T = float>
std::string bytes(const ls::infer::onnx_options& how = {}) {
    const std::vector<T> w(weights.begin(), weights.end()), s(statistics.begin(), statistics.end());
    return ls::infer::onnx_bytes(net, w, s, how);
}
template <class F>
std::string said(const F& f) {
    try {
        f();
    } catch (const ls::core::error& error) {
        return error.what();
    }
    return "nothing";
}

/// A layer that says nothing.
template <class S>
struct silent_layer : ls::layer_api::dropout_layer<S> {
    static constexpr std::string_view name = "silent";
    void write_onnx(auto&) const {}
};
struct silent {
    template <class S>
    constexpr auto on(S) const {
        return silent_layer<S>{};
    }
};

/// A layer that calls its constants alike, and one of them as an operation is called.
template <class S>
struct alike_layer : ls::layer_api::dropout_layer<S> {
    static constexpr std::string_view name = "alike";
    void write_onnx(auto& node) const {
        const auto product = node.operation("Mul", {node.x(), node.number("c", 2)});
        const auto sum = node.operation("Add", {product, node.number("c", 3)});
        node.gives(node.operation("Mul", {sum, node.number("Mul.2", 5)}));
    }
};
struct alike {
    template <class S>
    constexpr auto on(S) const {
        return alike_layer<S>{};
    }
};

}  // namespace

TEST_CASE("infer/onnx: constants have the names of a weight file, images are in the order of ONNX") {
    std::vector<float> numbers = weights;
    for (std::size_t i = 0; i < 48; ++i) numbers[i] = static_cast<float>(i);
    const auto model = parsed(ls::infer::onnx_bytes(net, numbers, statistics));
    CHECK(model.opset_import(0).version() == 17);
    std::vector<std::string> names, operations;
    for (const auto& one : model.graph().initializer()) names.push_back(one.name());
    for (const auto& one : model.graph().node()) operations.push_back(one.op_type());
    CHECK(names == std::vector<std::string>{"1.dense.weight", "1.dense.bias", "2.batch_norm.scale",
                                            "2.batch_norm.shift", "2.batch_norm.mean", "2.batch_norm.variance"});
    CHECK(operations == std::vector<std::string>{"Transpose", "Flatten", "Gemm", "BatchNormalization", "Relu"});
    // Rows of the weights, (pixel, channel) before, now (channel, pixel).
    const std::string& raw = model.graph().initializer(0).raw_data();
    for (std::size_t channel = 0; channel < 2; ++channel)
        for (std::size_t pixel = 0; pixel < 6; ++pixel)
            for (std::size_t j = 0; j < 4; ++j) {
                float there = 0;
                std::memcpy(&there, raw.data() + 4 * ((channel * 6 + pixel) * 4 + j), 4);
                CHECK(there == numbers[(pixel * 2 + channel) * 4 + j]);
            }
}

TEST_CASE("infer/onnx: ends in either order, names, and doubles") {
    const auto extents = [](const onnx::ValueInfoProto& of) {
        std::vector<std::int64_t> out;
        for (const auto& one : of.type().tensor_type().shape().dim()) out.push_back(one.dim_value());
        return out;
    };
    const auto usual = parsed(bytes());
    CHECK(usual.graph().input(0).name() == "x");
    CHECK(usual.graph().input(0).type().tensor_type().shape().dim(0).dim_param() == "batch");
    CHECK(extents(usual.graph().input(0)) == std::vector<std::int64_t>{0, 3, 2, 2});
    CHECK(extents(usual.graph().output(0)) == std::vector<std::int64_t>{0, 4});
    CHECK(usual.graph().node(usual.graph().node_size() - 1).output(0) == "y");
    const auto other = parsed(
        bytes({.images = ls::infer::image_order::channels_rows_columns, .input = "pictures", .output = "scores"}));
    CHECK(extents(other.graph().input(0)) == std::vector<std::int64_t>{0, 2, 3, 2});
    CHECK(other.graph().node(0).op_type() == "Flatten");
    CHECK(other.graph().input(0).name() == "pictures");
    CHECK(other.graph().output(0).name() == "scores");
    const auto wide = parsed(bytes<double>());
    CHECK(wide.graph().initializer(0).data_type() == onnx::TensorProto::DOUBLE);
    CHECK(wide.graph().input(0).type().tensor_type().elem_type() == onnx::TensorProto::DOUBLE);
}

/// LayerNormalization has its moments in float, and attributes are floats.
TEST_CASE("infer/onnx: normalisations of doubles are written in double") {
    constexpr auto normed = ls::sequential{ls::input<2>, layer_norm{.epsilon = 0.1}, batch_norm{.epsilon = 0.1}};
    const auto operations = [](const onnx::ModelProto& model) {
        std::vector<std::string> out;
        for (const auto& one : model.graph().node()) out.push_back(one.op_type());
        return out;
    };
    const auto narrow = parsed(
        ls::infer::onnx_bytes(normed, std::vector<float>{1, 1, 0, 0, 1, 1, 0, 0}, std::vector<float>{0, 0, 1, 1}));
    CHECK(operations(narrow) == std::vector<std::string>{"LayerNormalization", "BatchNormalization"});
    const auto wide = parsed(
        ls::infer::onnx_bytes(normed, std::vector<double>{1, 1, 0, 0, 1, 1, 0, 0}, std::vector<double>{0, 0, 1, 1}));
    CHECK(operations(wide) == std::vector<std::string>{"ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div",
                                                       "Mul", "Add", "BatchNormalization"});
    const auto number = [](const onnx::ModelProto& model, const std::string& name, auto out) {
        for (const auto& one : model.graph().initializer())
            if (one.name() == name) std::memcpy(&out, one.raw_data().data(), sizeof(out));
        return out;
    };
    CHECK(number(wide, "0.layer_norm.epsilon", 0.0) == 0.1);
    CHECK(number(narrow, "1.batch_norm.variance", 0.0F) == 1);
    const auto& attribute = wide.graph().node(9).attribute(0);
    REQUIRE(attribute.name() == "epsilon");
    CHECK(number(wide, "1.batch_norm.variance", 0.0) + static_cast<double>(attribute.f()) ==
          Approx(1.1).epsilon(1e-15));
}

TEST_CASE("infer/onnx: what cannot be written is an error with the values") {
    const auto path =
        (std::filesystem::temp_directory_path() / ("lockstep-unit-onnx-" + std::to_string(::getpid()))).string();
    const auto write = [&](const std::vector<float>& w, const std::vector<float>& s) {
        return said([&] { ls::write_onnx(path, net, w, s); });
    };
    CHECK_THAT(write({1, 2}, statistics),
               Catch::Contains("given 2 weights and 8 running statistics for a network of 60 and 8"));
    CHECK_THAT(write(weights, {}), Catch::Contains("60 weights and 0 running statistics"));
    std::vector<float> bad = weights;
    bad[7] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THAT(write(bad, statistics), Catch::Contains("weight 7 is nan"));
    bad = statistics;
    bad[3] = std::numeric_limits<float>::infinity();
    CHECK_THAT(write(weights, bad), Catch::Contains("running statistic 3 is inf"));
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK_THAT(said([] { (void)bytes({.input = "x", .output = "x"}); }),
               Catch::Contains("input 'x' and the output 'x'"));
    CHECK_THAT(said([] { (void)bytes({.input = ""}); }), Catch::Contains("give each a name"));
    // Those of constants and operations, too.
    for (const std::string name : {"0.conv.weight", "0.conv.Conv.0", "x.Transpose.0", "1x", "a b"})
        CHECK_THAT(said([&] { (void)bytes({.output = name}); }), Catch::Contains("and the output '" + name + "'"));
    const auto refused = ls::sequential{ls::input<2>, batch_norm{.epsilon = -0.5}};
    CHECK_THAT(said([&] {
                   ls::write_onnx(path, refused, std::vector<float>{1, 1, 0, 0}, std::vector<float>{0, 0, 1, 1});
               }),
               Catch::Contains("batch_norm has epsilon = -0.5"));
    const auto mute = ls::sequential{ls::input<3>, silent{}};
    CHECK_THAT(said([&] { ls::write_onnx(path, mute, std::vector<float>{}, std::vector<float>{}); }),
               Catch::Contains("layer 0.silent wrote no ONNX value"));
    // Attributes of ONNX are floats.
    const auto steep = ls::sequential{ls::input<3>, local_response_norm<41>{.alpha = 1e37, .beta = 0.3}};
    CHECK_THAT(said([&] { ls::write_onnx(path, steep, std::vector<float>{}, std::vector<float>{}); }),
               Catch::Contains("local_response_norm<41> has alpha = 1e+37, and ONNX stores alpha x window as a float"));
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK_THAT(said([&] { ls::write_onnx("/nowhere/at/all.onnx", net, weights, statistics); }),
               Catch::Contains("/nowhere/at/all.onnx"));
}

TEST_CASE("infer/onnx: values that a layer calls alike get names of their own") {
    const auto model = parsed(
        ls::infer::onnx_bytes(ls::sequential{ls::input<3>, alike{}}, std::vector<float>{}, std::vector<float>{}));
    std::vector<std::string> names;
    std::vector<float> numbers;
    for (const auto& one : model.graph().initializer()) {
        names.push_back(one.name());
        std::memcpy(&numbers.emplace_back(), one.raw_data().data(), sizeof(float));
    }
    CHECK(names == std::vector<std::string>{"0.alike.c", "0.alike.c.1", "0.alike.Mul.2"});
    CHECK(numbers == std::vector<float>{2, 3, 5});
    const auto& nodes = model.graph().node();
    REQUIRE(nodes.size() == 3);
    CHECK(nodes[0].input(1) == "0.alike.c");
    CHECK(nodes[1].input(1) == "0.alike.c.1");
    CHECK(nodes[2].input(1) == "0.alike.Mul.2");
    CHECK(nodes[2].name() == "0.alike.Mul.2.1");
    CHECK(nodes[2].output(0) == "y");
}

TEST_CASE("infer/onnx: a file is written as a whole, of a predictor as of its numbers") {
    const auto folder =
        std::filesystem::temp_directory_path() / ("lockstep-unit-predictor-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    const auto path = folder / "net.onnx";
    ls::write_onnx(path.string(), ls::predictor{net, weights, statistics});
    std::ifstream file{path, std::ios::binary};
    const std::string content{std::istreambuf_iterator<char>{file}, {}};
    CHECK(content == bytes());
    CHECK(std::distance(std::filesystem::directory_iterator{folder}, {}) == 1);  // and nothing half-written beside it
    std::filesystem::remove_all(folder);
}
