// SPDX-License-Identifier: BSD-3-Clause
// Tunes the convolutions of a network on this machine: times every algorithm of every pass, chooses, writes the file
// that a plan names.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/tuned.hpp"
#include "lockstep/models/alexnet.hpp"
#include "lockstep/models/lenet5.hpp"
#include "lockstep/models/overfeat_fast.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/models/resnet50.hpp"
#include "lockstep/models/vgg_a.hpp"
#include "lockstep/planner/convolutions.hpp"
#include "lockstep/planner/measure_convolution.hpp"

namespace {

namespace ls = lockstep;
namespace planner = lockstep::planner;

constexpr const char* usage =
    R"(Times the algorithms of the convolutions of a network, chooses among them, and writes the file for plan.algorithms.

usage: bench_tune --net NAME [--batch N] [--lanes N] [--ranks N] [--threads N] [--limit MB] [--divide] [--winograd6]
                  [--margin F] [--repeats N] [--all] [--write FILE]
  --net NAME     lenet5 (layer by layer), alexnet, overfeat_fast, vgg_a, resnet20, resnet44, resnet50
  --batch N      samples of the global minibatch [64]
  --lanes N      lanes of the plan [8]
  --ranks N      ranks that share the minibatch [1]
  --threads N    threads of a rank [1]; pin one thread with taskset
  --limit MB     scratch of each pass, or of all with --divide [64]
  --divide       each pass has scratch of its own; else they use the same memory in turn, as a trainer does
  --winograd6    tiles of 6 x 6 may be chosen: they err four times as much as those of 4 x 4
  --margin F     another algorithm than that of the default rule has to save this share of its time [0.03]
  --repeats N    the least time of so many counts [5]
  --all          also the times of every algorithm
  --write FILE   where the choice goes [nowhere]
)";

struct options {
    std::string net, file;
    std::size_t batch = 64, lanes = 8, ranks = 1;
    double limit = 64, margin = 0.03;
    bool divide = false, all = false;
    planner::measuring how{};
};

struct network {
    std::string_view name;
    std::vector<planner::convolution_layer> (*layers)();
};
template <const auto& Net>
std::vector<planner::convolution_layer> layers_of() {
    return planner::convolutions<std::remove_cvref_t<decltype(ls::tuned(Net))>>(true);
}
constexpr std::array networks{
    network{"lenet5", layers_of<ls::models::lenet5_layer_by_layer>},
    network{"alexnet", layers_of<ls::models::alexnet>},
    network{"overfeat_fast", layers_of<ls::models::overfeat_fast>},
    network{"vgg_a", layers_of<ls::models::vgg_a>},
    network{"resnet20", layers_of<ls::models::resnet<20>>},
    network{"resnet44", layers_of<ls::models::resnet<44>>},
    network{"resnet50", layers_of<ls::models::resnet50>},
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; ++i) {
        const std::string_view key = argv[i];
        const auto value = [&]() -> const char* {
            if (++i < argc) return argv[i];
            std::fprintf(stderr, "%s: a value must follow %s (see --help)\n", argv[0], argv[i - 1]);
            std::exit(2);
        };
        const auto number = [&] { return static_cast<std::size_t>(std::max(1L, std::strtol(value(), nullptr, 10))); };
        if (key == "--help") {
            std::fputs(usage, stdout);
            std::exit(0);
        } else if (key == "--net") {
            out.net = value();
        } else if (key == "--batch") {
            out.batch = number();
        } else if (key == "--lanes") {
            out.lanes = number();
        } else if (key == "--ranks") {
            out.ranks = number();
        } else if (key == "--threads") {
            out.how.team.threads = static_cast<int>(number());
        } else if (key == "--limit") {
            out.limit = std::strtod(value(), nullptr);
        } else if (key == "--divide") {
            out.divide = true;
        } else if (key == "--all") {
            out.all = true;
        } else if (key == "--winograd6") {
            out.how.allowed.push_back(ls::kernels::algorithm::winograd6);
        } else if (key == "--margin") {
            out.margin = std::strtod(value(), nullptr);
        } else if (key == "--repeats") {
            out.how.repeats = static_cast<int>(number());
        } else if (key == "--write") {
            out.file = value();
        } else {
            std::fprintf(stderr, "%s: unknown option %s (see --help)\n", argv[0], argv[i]);
            std::exit(2);
        }
    }
    out.how.samples = (out.batch + out.ranks - 1) / out.ranks;
    out.how.lanes = std::max<std::size_t>(1, out.lanes / out.ranks);
    return out;
}

void tune(const options& given, const std::vector<planner::convolution_layer>& layers) {
    const auto measured =
        planner::measure_convolutions<float>(layers, given.how, [&](std::size_t layer, std::size_t of) {
            std::fprintf(stderr, "measuring convolution %zu of %zu\n", layer + 1, of);
        });
    const auto chosen = planner::choose_algorithms(
        measured, given.how.samples, static_cast<std::size_t>(given.limit * 1e6),
        given.divide ? planner::workspace::division : planner::workspace::reuse, given.margin);
    std::printf("%5s  %-30s %-17s %-24s %9s %9s   %-10s %9s %9s\n", "layer", "geometry", "pass", "chosen", "ms", "MB",
                "by rule", "ms", "MB");
    double seconds = 0, rule_seconds = 0;
    std::size_t most = 0, rule_most = 0, sum = 0;
    for (const auto& one : chosen) {
        const auto text = [](std::string_view of) { return std::string{of}; };
        std::printf("%5zu  %-30s %-17s %-24s %9.3f %9.2f   %-10s %9.3f %9.2f\n", layers[one.layer].number,
                    to_text(layers[one.layer].geometry).c_str(), text(name(one.pass)).c_str(),
                    to_text(one.choice).c_str(), one.seconds * 1e3, static_cast<double>(one.scratch) / 1e6,
                    text(name(one.by_rule)).c_str(), one.rule_seconds * 1e3,
                    static_cast<double>(one.rule_scratch) / 1e6);
        seconds += one.seconds;
        rule_seconds += one.rule_seconds;
        most = std::max(most, one.scratch);
        rule_most = std::max(rule_most, one.rule_scratch);
        sum += one.scratch;
    }
    std::printf(
        "all convolutions of a minibatch of %zu samples: %.3f ms, by the rule %.3f ms: %.3f times as fast; scratch up "
        "to %.2f MB "
        "(by the rule %.2f MB), of all passes %.2f MB\n",
        given.how.samples, seconds * 1e3, rule_seconds * 1e3, rule_seconds / seconds, static_cast<double>(most) / 1e6,
        static_cast<double>(rule_most) / 1e6, static_cast<double>(sum) / 1e6);
    if (given.all)
        for (const auto& one : measured) {
            std::printf("%5zu  %-30s %-17s", layers[one.layer].number, to_text(layers[one.layer].geometry).c_str(),
                        std::string{name(one.pass)}.c_str());
            for (const auto& tried : one.algorithms)
                std::printf("  %s %.3f ms %.2f MB", std::string{name(tried.which)}.c_str(), tried.runs[0].seconds * 1e3,
                            static_cast<double>(tried.runs[0].scratch) / 1e6);
            std::printf("\n");
        }
    if (given.file.empty()) return;
    const std::string text = planner::write_algorithms(layers, planner::by_layer(chosen, layers.size()));
    std::FILE* const file = std::fopen(given.file.c_str(), "wb");
    const bool written = file && std::fputs(text.c_str(), file) >= 0;
    if (!file || std::fclose(file) != 0 || !written)
        throw ls::core::error{ls::core::text("the file ", given.file, " cannot be written"),
                              "check the folder and its permissions"};
    std::printf("written to %s: .model = ls::tuned(net), .algorithms = \"%s\"\n", given.file.c_str(),
                given.file.c_str());
}

}  // namespace

int main(int argc, char** argv) {
    const options given = read(argc, argv);
    for (const network& one : networks)
        if (one.name == given.net) {
            try {
                tune(given, one.layers());
                return 0;
            } catch (const std::exception& failure) {
                std::fprintf(stderr, "%s\n", failure.what());
                return 1;
            }
        }
    std::fprintf(stderr, "%s: no network named '%s' (see --help)\n", argv[0], given.net.c_str());
    return 2;
}
