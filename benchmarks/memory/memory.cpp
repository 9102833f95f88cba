// SPDX-License-Identifier: BSD-3-Clause
// Bandwidth of the kernels that move more than they compute, as a fraction of the bandwidth of a copy, which is
// measured right before each repeat.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/kernels/normalisation/column_moments.hpp"
#include "lockstep/kernels/normalisation/local_response.hpp"
#include "lockstep/kernels/normalisation/row_moments.hpp"
#include "lockstep/kernels/normalisation/softmax.hpp"
#include "lockstep/kernels/pooling/pooling.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "measure.hpp"

namespace {

using namespace lockstep;
using namespace benchmark;

struct options {
    std::string only;
    int repeats = 7;
    std::size_t megabytes = 256;
    bool wall = false;
    bool list = false;
};

constexpr const char* usage =
    R"(Bandwidth of the kernels, one JSON line for each case: median time, GB/s, and the median fraction of the bandwidth of a copy.

usage: memory [--case TEXT] [--repeats N] [--megabytes N] [--wall] [--list]
  --case TEXT      only cases whose name contains TEXT
  --repeats N      measurements of each case [7]
  --megabytes N    size of the largest array of a case [256]; less than the caches hold measures the caches
  --wall           wall-clock time; else time on the core, which other processes do not lengthen
  --list           names of the cases
Bytes are those that a kernel must move: each array read or written counts once. A copy is memcpy, read and write.
)";

class bench {
public:
    explicit bench(const options& given)
        : given_{given},
          n_{given.megabytes * (std::size_t{1} << 20) / sizeof(float)},
          bytes_{n_, 1, 0, 4},
          scratch_(std::size_t{1} << 22),
          labels_(n_ / 10, 3) {
        for (const double low : {-0.5, 0.0, 0.0, 0.0}) arrays_.emplace_back(n_, 1U, low, low + 1);
    }

    void all() {
        elementwise();
        for (const auto& [side, channels, window, stride] :
             {std::array<std::size_t, 4>{56, 32, 2, 2}, std::array<std::size_t, 4>{56, 64, 2, 2},
              std::array<std::size_t, 4>{56, 33, 2, 2}, std::array<std::size_t, 4>{55, 64, 3, 2},
              std::array<std::size_t, 4>{28, 256, 2, 2}, std::array<std::size_t, 4>{27, 256, 3, 2}})
            pooling({.rows = side,
                     .columns = side,
                     .channels = channels,
                     .kernel_rows = window,
                     .kernel_columns = window,
                     .stride_rows = stride,
                     .stride_columns = stride});
        for (const std::size_t channels : {32, 64, 256}) columns(channels);
        for (const std::size_t features : {768, 4096}) rows(features);
        response(96);
        for (const std::size_t classes : {10, 1000}) softmax(classes);
        updates();
    }

private:
    float* at(std::size_t index) const noexcept { return arrays_[index].data(); }
    std::span<float> whole(std::size_t index) const noexcept { return arrays_[index].all(); }
    std::span<const float> read(std::size_t index) const noexcept { return arrays_[index].all(); }
    kernels::resources<float> use() noexcept { return {{1}, scratch_}; }

    /// `moved` bytes in each run.
    template <class F>
    void measure(const std::string& name, double moved, F&& run) {
        if (name.find(given_.only) == std::string::npos) return;
        if (given_.list) {
            std::printf("%s\n", name.c_str());
            return;
        }
        const auto timed = [&](auto&& f) {
            const double begin = seconds(given_.wall);
            f();
            return seconds(given_.wall) - begin;
        };
        run();
        // Short ones run several times in one measurement.
        const int rounds = std::max(1, static_cast<int>(5e-3 / std::max(1e-7, timed(run))));
        std::vector<double> times, copies, fractions;
        for (int i = 0; i < given_.repeats; ++i) {
            const double copied = timed([&] {
                                      for (int r = 0; r < rounds; ++r) std::memcpy(at(2), at(0), n_ * sizeof(float));
                                  }) /
                                  rounds;
            const double took = timed([&] {
                                    for (int r = 0; r < rounds; ++r) run();
                                }) /
                                rounds;
            times.push_back(took);
            copies.push_back(2.0 * static_cast<double>(n_ * sizeof(float)) / copied * 1e-9);
            fractions.push_back(moved / took * 1e-9 / copies.back());
        }
        std::printf(
            "{\"case\": \"%s\", \"megabytes\": %zu, \"ms\": %.3f, \"gbytes_per_second\": %.2f, "
            "\"copy_gbytes_per_second\": %.2f, "
            "\"fraction_of_copy\": %.3f, \"best_fraction\": %.3f, \"repeats\": %d, \"instruction_set\": \"%s\"}\n",
            name.c_str(), given_.megabytes, median(times) * 1e3, moved / median(times) * 1e-9, median(copies),
            median(fractions), *std::max_element(fractions.begin(), fractions.end()), given_.repeats,
            std::string{simd::instruction_set()}.c_str());
        std::fflush(stdout);
    }

    void elementwise() {
        const double array = static_cast<double>(n_ * sizeof(float));
        // What a kernel can reach that stores through the caches, and one that stores past them.
        for (const bool streamed : {false, true})
            measure(streamed ? "copy.past_caches" : "copy.through_caches", 2 * array, [&] {
                simd::map_to(
                    n_, streamed, [](const auto& in) { return in; }, at(1), at(0));
                simd::stream_end();
            });
        measure("first_non_finite", array, [&] { keep_ = kernels::first_non_finite(read(0)); });
        measure("add", 3 * array, [&] { kernels::add(read(0), whole(1)); });
        measure("axpy", 3 * array, [&] { kernels::axpy(1e-3F, read(0), whole(1)); });
        measure("scale", 2 * array, [&] { kernels::scale(0.999F, whole(1)); });
        const auto activation = [&](const std::string& name, auto forward, auto backward) {
            measure(name + ".forward", 2 * array, [&] { forward(read(0), whole(1)); });
            measure(name + ".forward_in_place", 2 * array, [&] { forward(read(1), whole(1)); });
            measure(name + ".backward", 3 * array, [&] { backward(read(0), read(1), whole(2)); });
            measure(name + ".backward_in_place", 3 * array, [&] { backward(read(0), read(2), whole(2)); });
        };
        activation("relu", kernels::relu_forward<float>, kernels::relu_backward<float>);
        activation("tanh", kernels::tanh_forward<float>, kernels::tanh_backward<float>);
        activation("sigmoid", kernels::sigmoid_forward<float>, kernels::sigmoid_backward<float>);
        activation("gelu", kernels::gelu_forward<float>, kernels::gelu_backward<float>);
    }

    void pooling(const kernels::pooling& g) {
        const std::size_t batch = std::max<std::size_t>(1, n_ / g.in_size());
        const auto in = static_cast<double>(batch * g.in_size() * sizeof(float));
        const auto out = static_cast<double>(batch * g.out_size() * sizeof(float));
        const std::string name = std::to_string(g.kernel_rows) + "x" + std::to_string(g.kernel_columns) + "_stride_" +
                                 std::to_string(g.stride_rows) + "_channels_" + std::to_string(g.channels);
        if (batch * g.in_size() > n_) return;
        std::uint8_t* which = bytes_.data();
        measure("max_pool_" + name + ".forward", in + 1.25 * out,
                [&] { kernels::max_pool_forward<float>(g, batch, at(0), at(1), which, {1}); });
        measure("max_pool_" + name + ".inference", in + out,
                [&] { kernels::max_pool_forward<float>(g, batch, at(0), at(1), nullptr, {1}); });
        measure("max_pool_" + name + ".backward", in + 1.25 * out,
                [&] { kernels::max_pool_backward<float>(g, batch, at(1), which, at(3), {1}); });
        measure("mean_pool_" + name + ".forward", in + out,
                [&] { kernels::mean_pool_forward<float>(g, batch, at(0), at(1), {1}); });
        measure("mean_pool_" + name + ".backward", in + out,
                [&] { kernels::mean_pool_backward<float>(g, batch, at(1), at(3), {1}); });
    }

    void columns(std::size_t n) {
        const std::size_t rows = n_ / n;
        const double array = static_cast<double>(rows * n * sizeof(float));
        const std::string name = "batch_norm_" + std::to_string(n);
        std::vector<float> v(4 * n, 0.5F);
        scratch_.resize(std::max(scratch_.size(), kernels::column_sums_scratch<float>(rows, n)));
        float* const m = v.data();
        measure(name + ".statistics", array, [&] { kernels::column_moments<float>(rows, n, at(0), m, m + n, use()); });
        measure(name + ".normalise", 2 * array,
                [&] { kernels::normalise_columns<float>(rows, n, at(0), m, m + n, m + 2 * n, at(1), {1}); });
        measure(name + ".gradients", 2 * array, [&] {
            kernels::column_gradients<float>(rows, n, at(0), at(1), m, m + n, m + 2 * n, m + 3 * n, use());
        });
        measure(name + ".backward", 3 * array, [&] {
            kernels::normalise_columns_backward<float>(rows, n, at(0), at(1), m, m + n, m + 2 * n, m + 3 * n, at(3),
                                                       {1});
        });
    }

    void rows(std::size_t n) {
        const std::size_t count = n_ / n;
        const double array = static_cast<double>(count * n * sizeof(float));
        const std::string name = "layer_norm_" + std::to_string(n);
        std::vector<float> v(4 * n, 0.5F);
        std::vector<kernels::row_moments<float>> moments(count, {0.1F, 2.0F});
        measure(name + ".forward", 2 * array, [&] {
            kernels::normalise_rows<float>(count, n, at(0), v.data(), v.data() + n, 1e-5, at(1), moments.data(), {1});
        });
        measure(name + ".gradients", 2 * array, [&] {
            kernels::normalise_rows_gradients<float>(count, n, at(0), at(1), moments.data(), v.data() + 2 * n,
                                                     v.data() + 3 * n, {1});
        });
        measure(name + ".backward", 3 * array, [&] {
            kernels::normalise_rows_backward<float>(count, n, at(0), at(1), v.data(), moments.data(), at(3), {1});
        });
    }

    void response(std::size_t channels) {
        const std::size_t pixels = n_ / channels;
        const double array = static_cast<double>(pixels * channels * sizeof(float));
        measure("local_response_norm_" + std::to_string(channels) + ".forward", 2 * array,
                [&] { kernels::local_response_forward<float>({}, pixels, channels, at(0), at(1), use()); });
        measure("local_response_norm_" + std::to_string(channels) + ".backward", 3 * array,
                [&] { kernels::local_response_backward<float>({}, pixels, channels, at(0), at(1), at(3), use()); });
    }

    void softmax(std::size_t n) {
        const std::size_t count = n_ / n;
        const double array = static_cast<double>(count * n * sizeof(float));
        const std::string name = std::to_string(n);
        measure("softmax_" + name, 2 * array, [&] { kernels::softmax<float>(count, n, at(0), at(1), {1}); });
        measure("softmax_cross_entropy_" + name, 2 * array, [&] {
            keep_ = kernels::softmax_cross_entropy_rows<float>(count, n, at(0), labels_.data(), 1e-3F, at(1), {1}) > 0;
        });
    }

    void updates() {
        const double array = static_cast<double>(n_ * sizeof(float));
        std::fill_n(at(3), n_, 0.0F);
        // Adam's two slots are halves of one array and belong to half of the weights.
        const auto update = [&](const std::string& name, const auto& optimizer, std::size_t slots,
                                std::size_t numbers) {
            const std::size_t count = slots > 1 ? n_ / 2 : n_;
            const optim::update_pass<float> pass{.weights = {at(1), count},
                                                 .gradient = {at(0), count},
                                                 .slots = {at(3), slots, count, count},
                                                 .rate = 1e-6,
                                                 .step = 10};
            measure(name, static_cast<double>(numbers) * array * (slots > 1 ? 0.5 : 1),
                    [&] { optimizer.update(pass); });
        };
        update("sgd", optim::sgd{}, 0, 3);
        update("momentum", optim::momentum{}, 1, 5);
        update("nesterov", optim::momentum{.nesterov = true}, 1, 5);
        update("adam", optim::adam{}, 2, 7);
        update("adamw", optim::weight_decay{.rate = 1e-2, .decoupled = true, .inner = optim::adam{}}, 2, 7);
    }

    options given_;
    std::size_t n_;
    std::vector<buffer<float>> arrays_;
    buffer<std::uint8_t> bytes_;
    std::vector<float> scratch_;
    std::vector<std::int32_t> labels_;
    volatile std::size_t keep_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    options given;
    for (int i = 1; i < argc; ++i) {
        const std::string_view key = argv[i];
        const auto value = [&]() -> const char* {
            if (++i < argc) return argv[i];
            std::fprintf(stderr, "%s: a value must follow %s (see --help)\n", argv[0], argv[i - 1]);
            std::exit(2);
        };
        if (key == "--help") {
            std::fputs(usage, stdout);
            return 0;
        } else if (key == "--case") {
            given.only = value();
        } else if (key == "--repeats") {
            given.repeats = std::max(1, std::atoi(value()));
        } else if (key == "--megabytes") {
            given.megabytes = static_cast<std::size_t>(std::max(1, std::atoi(value())));
        } else if (key == "--wall") {
            given.wall = true;
        } else if (key == "--list") {
            given.list = true;
        } else {
            std::fprintf(stderr, "%s: unknown option %s (see --help)\n", argv[0], argv[i]);
            return 2;
        }
    }
    bench{given}.all();
    return 0;
}
