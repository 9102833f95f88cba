// SPDX-License-Identifier: BSD-3-Clause
// Speed of the matrix and convolution kernels as a fraction of the fused-multiply-add peak, which is measured right
// before each repeat.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/kernels/convolution/algorithm.hpp"
#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/depthwise.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/matrix/gemm_lanes.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "measure.hpp"
#include "square.hpp"

namespace {

using namespace lockstep;
using namespace benchmark;
using kernels::algorithm;
using kernels::convolution;
using kernels::transpose;

struct options {
    std::string only;
    int repeats = 11;
    int threads = 1;
    bool wall = false;
    bool twice = false;  // double precision
    bool list = false;
};

constexpr const char* usage =
    R"(Speed of the kernels, one JSON line for each case: median time, GFLOP/s, and the median fraction of the FMA peak.

usage: kernels [--case TEXT] [--repeats N] [--threads N] [--double] [--wall] [--list]
  --case TEXT   only cases whose name contains TEXT
  --repeats N   measurements of each case [11]
  --threads N   threads of the team [1]; pin one thread with taskset
  --double      double precision
  --wall        wall-clock time also with one thread; else time on the core, which other processes do not lengthen
  --list        names of the cases
)";

template <class T, class F>
void measure(const options& given, const std::string& name, double flops, F&& run) {
    run();
    std::vector<double> times;
    std::vector<double> peaks;
    std::vector<double> fractions;
    // Short kernels run several times in one measurement.
    const double begin = seconds(given.wall);
    run();
    const auto rounds = static_cast<int>(std::max(1.0, 0.01 / std::max(1e-7, seconds(given.wall) - begin)));
    for (int i = 0; i < given.repeats; ++i) {
        const double peak = fma_peak<T>(given.threads, given.wall);
        const double start = seconds(given.wall);
        for (int r = 0; r < rounds; ++r) run();
        const double took = (seconds(given.wall) - start) / rounds;
        times.push_back(took);
        peaks.push_back(peak);
        fractions.push_back(flops / took * 1e-9 / peak);
    }
    const double time = median(times);
    std::printf(
        "{\"case\": \"%s\", \"type\": \"%s\", \"threads\": %d, \"ms\": %.4f, \"gflops\": %.1f, \"peak_gflops\": %.1f, "
        "\"fraction_of_peak\": %.3f, \"best_fraction\": %.3f, \"repeats\": %d, \"instruction_set\": \"%s\"}\n",
        name.c_str(), sizeof(T) == 4 ? "float" : "double", given.threads, time * 1e3, flops / time * 1e-9,
        median(peaks), median(fractions), *std::max_element(fractions.begin(), fractions.end()), given.repeats,
        std::string{simd::instruction_set()}.c_str());
    std::fflush(stdout);
}

bool wanted(const options& given, const std::string& name) {
    if (name.find(given.only) == std::string::npos) return false;
    if (given.list) std::printf("%s\n", name.c_str());
    return !given.list;
}

template <class T>
void gemm_case(const options& given, const std::string& name, transpose ta, transpose tb, std::size_t m, std::size_t n,
               std::size_t k) {
    if (!wanted(given, name)) return;
    const parallel::team team{given.threads};
    const buffer<T> a(m * k, 1), b(k * n, 2), c(m * n), scratch(kernels::gemm_scratch<T>(m, n, k, team));
    measure<T>(given, name, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), [&] {
        kernels::gemm<T>(ta, tb, m, n, k, a.data(), ta == transpose::no ? k : m, b.data(), tb == transpose::no ? n : k,
                         c.data(), n, nullptr, {team, scratch.all()});
    });
}

template <class T>
void lanes_case(const options& given, const std::string& name, std::size_t lanes, std::size_t rows, std::size_t m,
                std::size_t n) {
    if (!wanted(given, name)) return;
    const parallel::team team{given.threads};
    const buffer<T> x(rows * m, 1), dy(rows * n, 2), dw(m * n),
        scratch(kernels::gemm_lanes_scratch<T>(lanes, rows, m, n, team));
    std::vector<parallel::block> parts;
    for (std::size_t lane = 0; lane < lanes; ++lane) parts.push_back(parallel::split(rows, lanes, lane));
    measure<T>(given, name, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(rows), [&] {
        kernels::gemm_lanes<T>(parts, m, n, x.data(), m, dy.data(), n, dw.data(), n, {team, scratch.all()});
    });
}

template <class T>
void convolution_case(const options& given, const std::string& name, std::size_t batch, const convolution& g,
                      algorithm a = algorithm::direct) {
    const parallel::team team{given.threads};
    const double flops = static_cast<double>(batch) * g.flops();
    const bool forward = wanted(given, name + ".forward");
    const bool backward_data = wanted(given, name + ".backward_data");
    const bool backward_weights = wanted(given, name + ".backward_weights");
    if (!forward && !backward_data && !backward_weights) return;
    const buffer<T> x(batch * g.in_size(), 1), w(g.weight_count(), 2), y(batch * g.out_size(), 3),
        dx(batch * g.in_size()), dw(g.weight_count()), bias(g.filters, 4), dbias(g.filters);
    const buffer<T> scratch(std::max({kernels::convolve_forward_scratch<T>(a, g, batch, team),
                                      kernels::convolve_backward_data_scratch<T>(a, g, batch, team),
                                      kernels::convolve_backward_weights_scratch<T>(a, g, batch, team)}));
    const kernels::resources<T> use{team, scratch.all()};
    if (backward_data)
        measure<T>(given, name + ".backward_data", flops,
                   [&] { kernels::convolve_backward_data<T>(a, g, batch, y.data(), w.data(), dx.data(), use); });
    if (backward_weights)
        measure<T>(given, name + ".backward_weights", flops, [&] {
            kernels::convolve_backward_weights<T>(a, g, batch, x.data(), y.data(), dw.data(), dbias.data(), use);
        });
    if (forward)
        measure<T>(given, name + ".forward", flops,
                   [&] { kernels::convolve_forward<T>(a, g, batch, x.data(), w.data(), bias.data(), y.data(), use); });
}

convolution grouped(convolution g, std::size_t groups, std::size_t dilation = 1) {
    g.groups = groups;
    g.dilation_rows = g.dilation_columns = dilation;
    return g;
}

template <class T>
void depthwise_case(const options& given, const std::string& name, std::size_t batch, std::size_t size,
                    std::size_t channels, std::size_t kernel, std::size_t stride = 1) {
    const convolution g = grouped(square(size, channels, channels, kernel, kernel / 2, stride), channels);
    const parallel::team team{given.threads};
    const double flops = static_cast<double>(batch) * g.flops();
    const buffer<T> x(batch * g.in_size(), 1), w(g.weight_count(), 2), y(batch * g.out_size(), 3),
        dx(batch * g.in_size()), dw(g.weight_count()), bias(g.filters, 4), dbias(g.filters);
    if (wanted(given, name + ".backward_data"))
        measure<T>(given, name + ".backward_data", flops,
                   [&] { kernels::depthwise_backward_data<T>(g, batch, y.data(), w.data(), dx.data(), team); });
    if (wanted(given, name + ".backward_weights"))
        measure<T>(given, name + ".backward_weights", flops, [&] {
            kernels::depthwise_backward_weights<T>(g, batch, x.data(), y.data(), dw.data(), dbias.data(), team);
        });
    if (wanted(given, name + ".forward"))
        measure<T>(given, name + ".forward", flops,
                   [&] { kernels::depthwise_forward<T>(g, batch, x.data(), w.data(), bias.data(), y.data(), team); });
}

// The layers of 3 x 3 kernels of VGG-A, OverFeat and the residual networks for CIFAR. GFLOP/s count the direct
// algorithm.
template <class T>
void winograd_cases(const options& given, algorithm a) {
    std::string end{"."};
    end += name(a);
    convolution_case<T>(given, "vgg_conv2" + end, 8, square(112, 64, 128, 3, 1), a);
    convolution_case<T>(given, "vgg_conv3_1" + end, 8, square(56, 128, 256, 3, 1), a);
    convolution_case<T>(given, "vgg_conv3_2" + end, 8, square(56, 256, 256, 3, 1), a);
    convolution_case<T>(given, "vgg_conv4_1" + end, 8, square(28, 256, 512, 3, 1), a);
    convolution_case<T>(given, "vgg_conv4_2" + end, 8, square(28, 512, 512, 3, 1), a);
    convolution_case<T>(given, "vgg_conv5" + end, 8, square(14, 512, 512, 3, 1), a);
    convolution_case<T>(given, "overfeat_conv3" + end, 32, square(12, 256, 512, 3, 1), a);
    convolution_case<T>(given, "overfeat_conv4" + end, 32, square(12, 512, 1024, 3, 1), a);
    convolution_case<T>(given, "overfeat_conv5" + end, 32, square(12, 1024, 1024, 3, 1), a);
    convolution_case<T>(given, "resnet_stage1" + end, 32, square(32, 16, 16, 3, 1), a);
    convolution_case<T>(given, "resnet_stage2" + end, 32, square(16, 32, 32, 3, 1), a);
    convolution_case<T>(given, "resnet_stage3" + end, 32, square(8, 64, 64, 3, 1), a);
}

template <class T>
void all(const options& given) {
    constexpr auto no = transpose::no;
    constexpr auto yes = transpose::yes;
    gemm_case<T>(given, "gemm_1024.nn", no, no, 1024, 1024, 1024);
    gemm_case<T>(given, "gemm_1024.nt", no, yes, 1024, 1024, 1024);
    gemm_case<T>(given, "gemm_1024.tn", yes, no, 1024, 1024, 1024);
    gemm_case<T>(given, "vgg_fc7_64.forward", no, no, 64, 4096, 4096);
    gemm_case<T>(given, "vgg_fc7_64.backward_data", no, yes, 64, 4096, 4096);
    lanes_case<T>(given, "vgg_fc7_64.backward_weights_8_lanes", 8, 64, 4096, 4096);
    lanes_case<T>(given, "vgg_fc7_256.backward_weights_8_lanes", 8, 256, 4096, 4096);
    lanes_case<T>(given, "cddnn_1024.backward_weights_8_lanes", 8, 1024, 2048, 2048);
    gemm_case<T>(given, "lenet_fc_64.forward", no, no, 64, 512, 1024);
    convolution_case<T>(given, "vgg_conv1", 4, square(224, 3, 64, 3, 1));
    convolution_case<T>(given, "vgg_conv2", 4, square(112, 64, 128, 3, 1));
    convolution_case<T>(given, "vgg_conv3_2", 4, square(56, 256, 256, 3, 1));
    convolution_case<T>(given, "vgg_conv4_2", 4, square(28, 512, 512, 3, 1));
    convolution_case<T>(given, "vgg_conv5", 4, square(14, 512, 512, 3, 1));
    convolution_case<T>(given, "overfeat_conv1", 4, square(231, 3, 96, 11, 0, 4));
    convolution_case<T>(given, "resnet_stage1", 32, square(32, 16, 16, 3, 1));
    convolution_case<T>(given, "resnet_down2", 32, square(32, 16, 32, 3, 1, 2));
    convolution_case<T>(given, "lenet_conv1", 32, square(28, 1, 32, 5, 0));
    convolution_case<T>(given, "lenet_conv2", 32, square(12, 32, 64, 5, 0));
    convolution_case<T>(given, "alexnet_conv2_two_groups", 4, grouped(square(27, 96, 256, 5, 2), 2));
    convolution_case<T>(given, "resnext_28_32_groups", 4, grouped(square(28, 256, 256, 3, 1), 32));
    convolution_case<T>(given, "dilation_2_28", 4, grouped(square(28, 256, 256, 3, 2), 1, 2));
    depthwise_case<T>(given, "depthwise_112x32", 4, 112, 32, 3);
    depthwise_case<T>(given, "depthwise_56x128_stride_2", 4, 56, 128, 3, 2);
    depthwise_case<T>(given, "depthwise_14x512", 4, 14, 512, 3);
    depthwise_case<T>(given, "depthwise_28x240_kernel_5", 4, 28, 240, 5);
    for (const algorithm a : {algorithm::winograd2, algorithm::winograd4, algorithm::winograd6})
        winograd_cases<T>(given, a);
}

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
        } else if (key == "--threads") {
            given.threads = std::max(1, std::atoi(value()));
        } else if (key == "--double") {
            given.twice = true;
        } else if (key == "--wall") {
            given.wall = true;
        } else if (key == "--list") {
            given.list = true;
        } else {
            std::fprintf(stderr, "%s: unknown option %s (see --help)\n", argv[0], argv[i]);
            return 2;
        }
    }
    if (given.threads > 1) given.wall = true;
    if (given.twice)
        all<double>(given);
    else
        all<float>(given);
    return 0;
}
