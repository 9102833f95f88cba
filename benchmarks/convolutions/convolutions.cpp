// SPDX-License-Identifier: BSD-3-Clause
// Convolutions of the networks of the literature beside oneDNN's, in turns: the same sums, each library in its own
// layouts.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/kernels/convolution/algorithm.hpp"
#include "measure.hpp"
#include "square.hpp"

#if defined(LOCKSTEP_PEER_DNNL)
#include <dnnl.hpp>
#include <optional>
#include <unordered_map>
#endif

namespace {

using namespace lockstep;
using namespace benchmark;
using kernels::algorithm;
using kernels::convolution;
using kernels::convolution_pass;

constexpr const char* usage =
    R"(Convolutions with bias on one core, one JSON line for each layer and pass: GFLOP/s as the direct algorithm counts them, the fraction of the FMA
peak, and where oneDNN was linked its GFLOP/s in turns with ours and the ratio of the medians.

usage: convolutions [--case TEXT] [--algorithm direct|winograd2|winograd4|winograd6|rule] [--batch N] [--repeats N]
  --case TEXT   only layers and passes whose name contains TEXT
  --algorithm   direct (default): beside oneDNN's direct one. A Winograd algorithm, or the one that the rule prefers: layers to which Winograd's
                applies, beside oneDNN's Winograd where it has one for the processor
  --batch N     samples, in place of the few that each layer has here
  --repeats N   turns of each; medians are printed [9]
oneDNN has its operands in the layouts that it prefers, reordered beforehand; lockstep in those of its networks. Pin it (taskset -c 1).
)";

struct layer {
    const char* name;
    std::size_t batch, size, channels, filters, kernel, pad, stride = 1;

    convolution geometry() const { return square(size, channels, filters, kernel, pad, stride); }
};

constexpr layer layers[] = {
    {"vgg_conv1", 4, 224, 3, 64, 3, 1},          {"vgg_conv2", 4, 112, 64, 128, 3, 1},
    {"vgg_conv3_1", 8, 56, 128, 256, 3, 1},      {"vgg_conv3_2", 8, 56, 256, 256, 3, 1},
    {"vgg_conv4_1", 8, 28, 256, 512, 3, 1},      {"vgg_conv4_2", 8, 28, 512, 512, 3, 1},
    {"vgg_conv5", 8, 14, 512, 512, 3, 1},        {"overfeat_conv1", 8, 231, 3, 96, 11, 0, 4},
    {"overfeat_conv2", 16, 28, 96, 256, 5, 0},   {"overfeat_conv3", 16, 12, 256, 512, 3, 1},
    {"overfeat_conv4", 16, 12, 512, 1024, 3, 1}, {"overfeat_conv5", 16, 12, 1024, 1024, 3, 1},
    {"resnet_conv1", 64, 32, 3, 16, 3, 1},       {"resnet_stage1", 64, 32, 16, 16, 3, 1},
    {"resnet_down2", 64, 32, 16, 32, 3, 1, 2},   {"resnet_stage2", 64, 16, 32, 32, 3, 1},
    {"resnet_down3", 64, 16, 32, 64, 3, 1, 2},   {"resnet_stage3", 64, 8, 64, 64, 3, 1},
    {"lenet_conv1", 128, 28, 1, 6, 5, 2},        {"lenet_conv2", 128, 14, 6, 16, 5, 0},
};

constexpr std::array<const char*, 3> pass_names{"forward", "backward_data", "backward_weights"};

/// What both libraries compute: x * w + bias = y, or gradients of x, or of w and the bias, from those of y.
struct arrays {
    buffer<float> x, w, bias, y;
    arrays(const convolution& g, std::size_t batch)
        : x(batch * g.in_size(), 1), w(g.weight_count(), 2), bias(g.filters, 3), y(batch * g.out_size(), 4) {}
};

#if defined(LOCKSTEP_PEER_DNNL)
/// Nothing where oneDNN has no such primitive.
std::optional<contender> peer(const layer& of, convolution_pass pass, bool winograd) {
    using namespace dnnl;
    static engine cpu(engine::kind::cpu, 0);
    static stream line(cpu);
    const convolution g = of.geometry();
    const auto size = [](std::size_t n) { return static_cast<memory::dim>(n); };
    const auto any = [](memory::dims dims) {
        return memory::desc(std::move(dims), memory::data_type::f32, memory::format_tag::any);
    };
    const auto x = any({size(of.batch), size(g.channels), size(g.rows), size(g.columns)});
    const auto w = any({size(g.filters), size(g.channels), size(g.kernel_rows), size(g.kernel_columns)});
    const auto y = any({size(of.batch), size(g.filters), size(g.out_rows()), size(g.out_columns())});
    const memory::desc bias({size(g.filters)}, memory::data_type::f32, memory::format_tag::a);
    const memory::dims stride{size(of.stride), size(of.stride)}, pad{size(of.pad), size(of.pad)};
    const auto how = winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
    // Memory that holds numbers: what the primitive reads is made once.
    const auto filled = [](const memory::desc& d) {
        memory out(d, cpu);
        auto* const numbers = static_cast<float*>(out.get_data_handle());
        const std::size_t count = d.get_size() / sizeof(float);
        const buffer<float> random(count, 5);
        std::copy_n(random.data(), count, numbers);
        return out;
    };
    try {
        const convolution_forward::primitive_desc forward(
            convolution_forward::desc(prop_kind::forward_training, how, x, w, bias, y, stride, pad, pad), cpu);
        primitive run;
        std::unordered_map<int, memory> operands;
        std::string name;
        if (pass == convolution_pass::forward) {
            run = convolution_forward(forward);
            operands = {{DNNL_ARG_SRC, filled(forward.src_desc())},
                        {DNNL_ARG_WEIGHTS, filled(forward.weights_desc())},
                        {DNNL_ARG_BIAS, filled(forward.bias_desc())},
                        {DNNL_ARG_DST, filled(forward.dst_desc())}};
            name = forward.impl_info_str();
        } else if (pass == convolution_pass::backward_data) {
            const convolution_backward_data::primitive_desc data(
                convolution_backward_data::desc(how, x, w, y, stride, pad, pad), cpu, forward);
            run = convolution_backward_data(data);
            operands = {{DNNL_ARG_DIFF_DST, filled(data.diff_dst_desc())},
                        {DNNL_ARG_WEIGHTS, filled(data.weights_desc())},
                        {DNNL_ARG_DIFF_SRC, filled(data.diff_src_desc())}};
            name = data.impl_info_str();
        } else {
            const convolution_backward_weights::primitive_desc weights(
                convolution_backward_weights::desc(how, x, w, bias, y, stride, pad, pad), cpu, forward);
            run = convolution_backward_weights(weights);
            operands = {{DNNL_ARG_SRC, filled(weights.src_desc())},
                        {DNNL_ARG_DIFF_DST, filled(weights.diff_dst_desc())},
                        {DNNL_ARG_DIFF_WEIGHTS, filled(weights.diff_weights_desc())},
                        {DNNL_ARG_DIFF_BIAS, filled(weights.diff_bias_desc())}};
            name = weights.impl_info_str();
        }
        return contender{std::move(name), [run, operands] {
                             run.execute(line, operands);
                             line.wait();
                         }};
    } catch (const dnnl::error&) {
        return std::nullopt;
    }
}
#endif

void measure(const layer& of, convolution_pass pass, algorithm a, int repeats) {
    const parallel::team team{1};
    const convolution g = of.geometry();
    const arrays with(g, of.batch);
    const std::size_t count = pass == convolution_pass::forward
                                  ? kernels::convolve_forward_scratch<float>(a, g, of.batch, team)
                              : pass == convolution_pass::backward_data
                                  ? kernels::convolve_backward_data_scratch<float>(a, g, of.batch, team)
                                  : kernels::convolve_backward_weights_scratch<float>(a, g, of.batch, team);
    const buffer<float> scratch(count);
    const kernels::resources<float> use{team, scratch.all()};
    std::vector<contender> all;
    all.push_back({"lockstep", [&] {
                       if (pass == convolution_pass::forward)
                           kernels::convolve_forward<float>(a, g, of.batch, with.x.data(), with.w.data(),
                                                            with.bias.data(), with.y.data(), use);
                       else if (pass == convolution_pass::backward_data)
                           kernels::convolve_backward_data<float>(a, g, of.batch, with.y.data(), with.w.data(),
                                                                  with.x.data(), use);
                       else
                           kernels::convolve_backward_weights<float>(a, g, of.batch, with.x.data(), with.y.data(),
                                                                     with.w.data(), with.bias.data(), use);
                   }});
#if defined(LOCKSTEP_PEER_DNNL)
    if (auto other = peer(of, pass, a != algorithm::direct)) all.push_back(*std::move(other));
#endif
    const double gflop = 1e-9 * static_cast<double>(of.batch) * g.flops();
    take_turns<float>(all, gflop, repeats);
    const double rate = median(all[0].rates);
    std::printf(
        "{\"case\": \"%s.%s\", \"algorithm\": \"%s\", \"batch\": %zu, \"ms\": %.4f, \"gflops\": %.1f, "
        "\"fraction_of_peak\": %.3f",
        of.name, pass_names[static_cast<std::size_t>(pass)], std::string{name(a)}.c_str(), of.batch, gflop / rate * 1e3,
        rate, median(all[0].fractions));
    for (std::size_t i = 1; i < all.size(); ++i)
        std::printf(", \"onednn\": \"%s\", \"onednn_gflops\": %.1f, \"onednn_fraction_of_peak\": %.3f, \"ratio\": %.3f",
                    all[i].name.c_str(), median(all[i].rates), median(all[i].fractions), rate / median(all[i].rates));
    std::printf(", \"repeats\": %d}\n", repeats);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    std::string only, how = "direct";
    int repeats = 9;
    std::size_t batch = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string_view key = argv[i];
        const bool has_value = i + 1 < argc;
        if (key == "--case" && has_value)
            only = argv[++i];
        else if (key == "--algorithm" && has_value)
            how = argv[++i];
        else if (key == "--batch" && has_value)
            batch = static_cast<std::size_t>(std::max(1, std::atoi(argv[++i])));
        else if (key == "--repeats" && has_value)
            repeats = std::max(1, std::atoi(argv[++i]));
        else {
            std::fputs(usage, key == "--help" ? stdout : stderr);
            return key == "--help" ? 0 : 2;
        }
    }
    const auto chosen = std::find_if(kernels::algorithms.begin(), kernels::algorithms.end(),
                                     [&](algorithm a) { return name(a) == how; });
    if (chosen == kernels::algorithms.end() && how != "rule") {
        std::fprintf(stderr, "%s: '%s' is no algorithm (see --help)\n", argv[0], how.c_str());
        return 2;
    }
    for (layer each : layers)
        for (const convolution_pass pass : kernels::convolution_passes) {
            const convolution g = each.geometry();
            const std::string name = std::string{each.name} + '.' + pass_names[static_cast<std::size_t>(pass)];
            const algorithm a = how == "rule" ? kernels::preferred_algorithm(g, pass) : *chosen;
            // The gradient of pictures is never computed.
            const bool pictures = g.channels <= 3 && pass == convolution_pass::backward_data;
            if (name.find(only) == std::string::npos || pictures || !kernels::applies(a, g)) continue;
            if (how == "rule" && !kernels::winograd_applies(g)) continue;
            if (batch > 0) each.batch = batch;
            measure(each, pass, a, repeats);
        }
    return 0;
}
