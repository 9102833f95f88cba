// SPDX-License-Identifier: BSD-3-Clause
// A predictor on one thread, for benchmarks/inference/run, which lets ONNX Runtime take turns with it.
//
//     bench_inference FOLDER    writes FOLDER/NAME.onnx, NAME.x and NAME.y (samples in the order of ONNX, and outputs),
//                               and prints a line of JSON for each network; then it answers each line "NAME ROWS
//                               SECONDS" with the median seconds of a call of predict() for so many rows
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/infer/onnx.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/models/lenet5.hpp"
#include "lockstep/models/mlp.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/models/resnet50.hpp"
#include "lockstep/models/vgg_a.hpp"
#include "measure.hpp"

namespace ls = lockstep;
using namespace ls::layers;

namespace {

std::filesystem::path folder;
/// Median seconds of a call for so many rows, measured for so long.
std::map<std::string, std::function<double(std::size_t, double)>> measured;

void write_numbers(const std::string& name, std::span<const float> numbers) {
    std::ofstream file{folder / name, std::ios::binary};
    file.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes()));
    if (!file.flush()) throw ls::core::error{"cannot write \"" + (folder / name).string() + "\"", "look at the disk"};
}

/// Random weights that keep values in their range, the same in both programs.
template <class Net>
void add(const std::string& name, const Net& net, const std::vector<std::size_t>& batches) {
    using network = ls::model::network<Net, 1>;
    constexpr auto extents = network::input::extents;
    const ls::core::random_stream random{3, ls::core::purpose::user};
    const auto uniform = [&](std::size_t i) { return static_cast<float>(2 * random.uniform(i) - 1); };
    std::vector<float> weights, statistics;
    ls::core::for_each_index<network::size>([&](auto index) {
        using layer = typename ls::model::bound<Net, 1, index>::whole;
        for (const auto& one : layer::parameters) {
            const float scale = one.rows > 1 ? std::sqrt(6.0F / static_cast<float>(one.fan_in)) : 0.1F;
            const float offset = one.initial == ls::tensor::start::ones ? 1 : 0;
            for (std::size_t i = 0; i < one.size(); ++i) weights.push_back(offset + scale * uniform(weights.size()));
        }
        for (const auto& one : ls::layer_api::statistics_of<layer>)
            for (std::size_t i = 0; i < one.size(); ++i)
                statistics.push_back(one.name == "variance" ? 1.0F : 0.1F * uniform(statistics.size()));
    });
    const std::size_t most = *std::ranges::max_element(batches);
    auto predictor = std::make_shared<ls::predictor<Net>>(
        net, std::span<const float>{weights}, std::span<const float>{statistics}, ls::infer::options{.rows = most});
    ls::write_onnx((folder / (name + ".onnx")).string(), *predictor,
                   {.images = ls::infer::image_order::channels_rows_columns});
    auto x = std::make_shared<std::vector<float>>(most * network::input::size);
    for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] = uniform(i);
    const std::size_t shown = std::min<std::size_t>(most, 2);
    std::vector<float> turned;
    for (std::size_t row = 0; row < shown; ++row) {
        const auto sample = std::span<const float>{*x}.subspan(row * network::input::size, network::input::size);
        const auto part = ls::infer::channels_first<float>(sample, extents.size() == 3 ? extents.back() : 1);
        turned.insert(turned.end(), part.begin(), part.end());
    }
    write_numbers(name + ".x", turned);
    write_numbers(name + ".y", predictor->predict(std::span<const float>{*x}.first(shown * network::input::size)));
    measured[name] = [=](std::size_t rows, double seconds) {
        const std::span<const float> samples = std::span<const float>{*x}.first(rows * network::input::size);
        std::vector<double> times;
        for (const double begin = benchmark::seconds(true);
             times.size() < 3 || (benchmark::seconds(true) - begin < seconds && times.size() < 100'000);) {
            const double start = benchmark::seconds(true);
            if (predictor->predict(samples).size() != rows * network::output::size) std::abort();
            times.push_back(benchmark::seconds(true) - start);
        }
        return benchmark::median(times);
    };
    std::printf("{\"name\": \"%s\", \"batches\": [", name.c_str());
    for (std::size_t i = 0; i < batches.size(); ++i) std::printf("%s%zu", i > 0 ? ", " : "", batches[i]);
    std::printf("]}\n");
}

}  // namespace

int main(int count, char** arguments) try {
    if (count != 2)
        throw ls::core::error{"bench_inference takes one argument, a folder", "run benchmarks/inference/run"};
    folder = arguments[1];
    std::filesystem::create_directories(folder);
    add("16-64-16", ls::sequential{ls::input<16>, dense<64>{}, relu{}, dense<16>{}}, {1, 64, 4096});
#if !defined(BENCHMARK_FEW_NETWORKS)
    add("784-1024-1024-10", ls::models::mlp, {1, 2, 4, 8, 128});
    add("lenet-32-64-512",
        ls::sequential{ls::input<28, 28, 1>, conv<32, 5>{}, relu{}, max_pool<2>{}, conv<64, 5>{}, relu{}, max_pool<2>{},
                       flatten{}, dense<512>{}, relu{}, dense<10>{}},
        {1, 128});
    add("resnet-20", ls::models::resnet<20>, {1, 128});
    add("resnet-50", ls::models::resnet50, {1});
    add("vgg-a", ls::models::vgg_a, {1, 16});
#endif
    add("lenet5", ls::models::lenet5, {1, 128});
    std::printf("ready\n");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words{line};
        std::string name;
        std::size_t rows = 0;
        double seconds = 0;
        if (!(words >> name >> rows >> seconds) || measured.count(name) == 0)
            throw ls::core::error{"cannot read \"" + line + "\"", "write: NAME ROWS SECONDS"};
        std::printf("%.9f\n", measured[name](rows, seconds));
        std::fflush(stdout);
    }
} catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return EXIT_FAILURE;
}
