// SPDX-License-Identifier: BSD-3-Clause
// Writes networks as ONNX files, each with samples and what a predictor makes of them: FOLDER/NAME.onnx, NAME.x and
// NAME.y, numbers as they lie in memory. tests/onnx/check lets others run them.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/infer/onnx.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/depthwise_conv.hpp"
#include "lockstep/models/lenet5.hpp"
#include "lockstep/models/resnet.hpp"
#include "network/own_join.hpp"

namespace ls = lockstep;
using namespace ls::layers;

namespace {

/// y = log(1 + exp(x)) of a user who knows of ONNX.
template <ls::tensor::Shape S>
struct softplus_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "softplus";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    void forward(const auto& pass) const {
        for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y.data[i] = std::log1p(std::exp(pass.x.data[i]));
    }
    void backward(const auto&) const {}
    void write_onnx(auto& node) const { node.gives(node.operation("Softplus", {node.x()})); }
};
struct softplus {
    template <ls::tensor::Shape S>
    constexpr auto on(S) const {
        return softplus_layer<S>{};
    }
};

/// y = x0 - 2 x1: features that belong together, in whatever order they are.
template <ls::tensor::Shape S>
struct difference_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "difference";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 2.0 * S::size;
    static constexpr ls::layer_api::traits traits{.inputs = 2};
    void forward(const auto& pass) const noexcept {
        for (std::size_t i = 0; i < pass.y.size(); ++i) pass.y.data[i] = pass.x[0][i] - 2 * pass.x[1][i];
    }
    void backward(const auto&) const noexcept {}
};
struct difference {
    template <class S>
    constexpr auto on(S, S) const {
        return difference_layer<S>{};
    }
};

}  // namespace

template <class S>
struct ls::infer::onnx_layer<difference_layer<S>> {
    static constexpr bool any_order = true;
    static void write(const auto&, auto& node) {
        const auto twice = node.operation("Mul", {node.x(1), node.number("two", 2)});
        node.gives(node.operation("Sub", {node.x(0), twice}));
    }
};
/// A join of another author: y = a x0 + b scale x0 x1.
template <class S>
struct ls::infer::onnx_layer<support::gate_layer<S>> {
    static void write(const auto& layer, auto& node) {
        const auto a = node.vector("a", node.parameter(0)), b = node.vector("b", node.parameter(1));
        const auto scaled = node.operation("Mul", {b, node.number("scale", layer.scale)});
        const auto both = node.operation("Mul", {node.operation("Mul", {node.x(0), node.x(1)}), scaled});
        node.gives(node.operation("Add", {node.operation("Mul", {node.x(0), a}), both}));
    }
};

namespace {

std::filesystem::path folder;

template <class T>
void write_numbers(const std::string& name, const std::vector<T>& numbers) {
    std::ofstream file{folder / name, std::ios::binary};
    file.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size() * sizeof(T)));
    if (!file.flush()) throw ls::core::error{"cannot write \"" + (folder / name).string() + "\"", "look at the disk"};
}

/// Weights as large as keep values in their range; statistics in (0.5, 1.5).
template <class T = float, class Net>
void write(const std::string& name, const Net& net, std::size_t rows, const ls::infer::onnx_options& how = {}) {
    using network = ls::model::network<Net, 1>;
    const ls::core::random_stream random{11, ls::core::purpose::user};
    const auto uniform = [&](std::size_t i) { return static_cast<T>(2 * random.uniform(i) - 1); };
    std::vector<T> weights, statistics, x(rows * network::input::size);
    ls::core::for_each_index<network::size>([&](auto index) {
        using layer = typename ls::model::bound<Net, 1, index>::whole;
        for (const auto& one : layer::parameters) {
            const T scale = one.rows > 1 ? std::sqrt(T{6} / static_cast<T>(one.fan_in)) : T{0.5};
            const T offset = one.initial == ls::tensor::start::ones ? 1 : 0;
            for (std::size_t i = 0; i < one.size(); ++i) weights.push_back(offset + scale * uniform(weights.size()));
        }
        for (const auto& one : ls::layer_api::statistics_of<layer>)
            for (std::size_t i = 0; i < one.size(); ++i)
                statistics.push_back((one.name == "variance" ? T{1} : T{0}) + uniform(1000 + statistics.size()) / 2);
    });
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = uniform(500'000 + i);
    ls::predictor predictor{net, weights, statistics};
    ls::write_onnx((folder / (name + ".onnx")).string(), predictor, how);
    auto y = predictor.predict(std::span<const T>{x});
    if (how.images == ls::infer::image_order::channels_rows_columns) {
        const auto turned = [&](auto shape, std::vector<T>& all) {
            if constexpr (shape.rank == 3) {
                std::vector<T> out;
                for (std::size_t row = 0; row < rows; ++row) {
                    const auto part = ls::infer::channels_first<T>(std::span{all}.subspan(row * shape.size, shape.size),
                                                                   shape.extents[2]);
                    out.insert(out.end(), part.begin(), part.end());
                }
                all = out;
            }
        };
        turned(typename network::input{}, x);
        turned(typename network::output{}, y);
    }
    write_numbers(name + ".x", x);
    write_numbers(name + ".y", y);
    std::printf("%s\n", name.c_str());
}

constexpr auto windows = ls::sequential{
    ls::input<21, 17, 3>,
    conv<8, rows_and_columns{3, 5}, conv_options{.stride = {2, 1}, .padding = {1, 3}, .dilation = {1, 2}}>{},
    batch_norm{.epsilon = 1e-3},
    relu{},
    ls::residual{conv<8, 3, conv_options{.padding = 1, .bias = bias::none}>{}, batch_norm{}, relu{},
                 depthwise_conv<rows_and_columns{3, 1}, conv_options{.padding = {1, 0}}>{}},
    relu{},
    conv<12, 2, conv_options{.padding = 1, .groups = 4}>{},
    local_response_norm<3>{.alpha = 0.05, .beta = 0.6, .offset = 1.5},
    ls::concatenate{ls::path{max_pool<3, 2, 1>{}, layer_norm{}}, ls::path{mean_pool<2>{}, gelu{}},
                    ls::path{conv_max_pool<5, 3, conv_max_pool_options{.padding = 1}>{}, ls::layers::tanh{}}},
    ls::add{ls::path{conv<33, 3, conv_options{.stride = 2, .padding = 1}>{}}, shortcut<33, 2>{}, shortcut<33, 2>{}},
    sigmoid{},
    global_mean_pool{},
    dense<7>{}};

/// Features of an image in either order.
constexpr auto features = ls::sequential{
    ls::input<5, 4, 3>,
    conv<6, 2>{},
    flatten{},
    dropout{},
    ls::layers::tanh{},
    ls::add{ls::path{dense<20>{}, gelu{}}, ls::path{layer_norm{}, dense<20>{}, batch_norm{}}},
    ls::concatenate{ls::path{dense<9>{}}, ls::path{}, ls::path{local_response_norm{.alpha = 0.3}, dense<3>{}}},
    ls::join{support::gate{0.5}, ls::path{softplus{}}, ls::path{sigmoid{}}},
    dense<11>{}};

}  // namespace

int main(int, char** arguments) try {
    folder = arguments[1];
    std::filesystem::create_directories(folder);
    write("windows", windows, 3);
    write("features", features, 5);
    write("images", ls::sequential{ls::input<6, 5, 2>, conv<3, 3>{}, layer_norm{}, ls::recompute{conv<4, 1>{}, relu{}}},
          2);
    write("channels_first", ls::sequential{ls::input<6, 5, 2>, conv<3, 3>{}, relu{}, mean_pool<2>{}}, 2,
          {.images = ls::infer::image_order::channels_rows_columns, .input = "pictures", .output = "maps"});
    write("flat_image", ls::sequential{ls::input<3, 4, 2>, relu{}, flatten{}, dropout{}}, 2);
    write("two_extents",
          ls::sequential{ls::input<6, 5>, local_response_norm{.alpha = 0.2}, local_response_norm{.alpha = 0},
                         local_response_norm{.alpha = 1e-46}, local_response_norm{.beta = 1e-46}, batch_norm{},
                         ls::concatenate{ls::path{}, gelu{}, relu{}}, flatten{}},
          3);
    write("nothing", ls::sequential{ls::input<4>, dropout{}}, 2);
    write("joined_flat",
          ls::sequential{ls::input<3, 3, 2>, flatten{}, ls::residual{gelu{}}, ls::concatenate{ls::path{}, dense<3>{}}},
          2);
    // Both layers read one value under one name, in another order than a network's.
    write("flat_and_dropout", ls::sequential{ls::input<3, 2, 2>, flatten{}, ls::residual{dropout{}}, dense<3>{}}, 2);
    write("dropout_twice",
          ls::sequential{ls::input<3, 2, 2>, conv<3, 2>{}, flatten{},
                         ls::concatenate{ls::path{dropout{}}, ls::path{dropout{}}}, dense<3>{}},
          2);
    // Values of one join in two orders, either one first, and in the same.
    write("join_of_two_orders",
          ls::sequential{ls::input<3, 2, 2>, flatten{}, ls::join{difference{}, ls::path{}, ls::path{dense<12>{}}},
                         dense<5>{}},
          2);
    write("join_of_two_orders_turned",
          ls::sequential{ls::input<3, 2, 2>, flatten{}, ls::join{difference{}, ls::path{dense<12>{}}, ls::path{}}}, 2);
    write(
        "join_of_one_order",
        ls::sequential{ls::input<3, 2, 2>, flatten{}, ls::join{difference{}, ls::path{gelu{}}, ls::path{}}, dense<5>{}},
        2);
    write<double>("double_norms",
                  ls::sequential{ls::input<5, 4, 3>, layer_norm{.epsilon = 0.01}, batch_norm{.epsilon = 0.1}, relu{},
                                 flatten{}, layer_norm{}, dense<7>{}, layer_norm{.epsilon = 0.1}},
                  3);
    write<double>("double_two_extents", ls::sequential{ls::input<6, 5>, layer_norm{}, batch_norm{}}, 3);
    write("lenet5", ls::models::lenet5, 4);
    write("lenet5_layer_by_layer", ls::models::lenet5_layer_by_layer, 1);
    write("resnet20", ls::models::resnet<20>, 2);
} catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return EXIT_FAILURE;
}
