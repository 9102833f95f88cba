// SPDX-License-Identifier: BSD-3-Clause
// Speed of whole training steps of the networks of the literature on one process or all ranks, as a fraction of the
// fused-multiply-add peak.

#include <boost/mpi/environment.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "train/networks.hpp"

namespace {

constexpr const char* usage =
    R"(Speed of training steps, one JSON line for each network: medians of time, samples/s, GFLOP/s and fraction of the FMA peak.

usage: bench_train [--case TEXT] [--batch N] [--threads N] [--repeats N] [--seconds S] [--transport T] [--partition hybrid] [--serial] [--list]
  --case TEXT   only networks whose name contains TEXT
  --batch N     samples in a step of all ranks together [that of the peers' programs]
  --threads N   OpenMP threads [1]; pin one thread with taskset
  --repeats N   measurements of each network [5]
  --seconds S   steps are repeated for so long in each measurement [2]
  --transport T one training run on all ranks of mpirun: messages, shared_memory or automatic [each process trains alone]
  --partition hybrid  with --transport: dense layers are cut in two, between the ranks of a pair; some networks only
  --serial      one process: the trainer in turns with a plain loop over the same work, and the ratio of their times; some networks only
  --list        names of the networks
)";

}  // namespace

int main(int argc, char** argv) {
    benchmark::options given;
    for (int i = 1; i < argc; ++i) {
        const std::string_view key = argv[i];
        const auto value = [&]() -> const char* {
            if (++i < argc) return argv[i];
            std::fprintf(stderr, "%s: a value must follow %s (see --help)\n", argv[0], argv[i - 1]);
            std::exit(2);
        };
        const auto number = [&] { return static_cast<std::size_t>(std::strtoul(value(), nullptr, 10)); };
        if (key == "--help") {
            std::fputs(usage, stdout);
            return 0;
        } else if (key == "--case") {
            given.net = value();
        } else if (key == "--batch") {
            given.batch = number();
        } else if (key == "--threads") {
            given.threads = std::max<std::size_t>(1, number());
        } else if (key == "--repeats") {
            given.repeats = std::max<std::size_t>(1, number());
        } else if (key == "--seconds") {
            given.seconds = std::strtod(value(), nullptr);
        } else if (key == "--transport") {
            given.transport = value();
            if (given.transport != "messages" && given.transport != "shared_memory" && given.transport != "automatic") {
                std::fprintf(stderr, "%s: transport '%s' is not known (see --help)\n", argv[0],
                             given.transport.c_str());
                return 2;
            }
        } else if (key == "--partition") {
            given.partition = value();
            if (given.partition != "hybrid") {
                std::fprintf(stderr, "%s: partition '%s' is not known (see --help)\n", argv[0],
                             given.partition.c_str());
                return 2;
            }
        } else if (key == "--serial") {
            given.serial = true;
        } else if (key == "--list") {
            given.list = true;
        } else {
            std::fprintf(stderr, "%s: unknown option %s (see --help)\n", argv[0], argv[i]);
            return 2;
        }
    }
    if (!given.partition.empty() && (given.transport.empty() || given.serial)) {
        std::fprintf(stderr, "%s: --partition needs --transport and does not go with --serial (see --help)\n", argv[0]);
        return 2;
    }
    std::optional<boost::mpi::environment> environment;
    if (!given.transport.empty()) environment.emplace(argc, argv, boost::mpi::threading::funneled);
    bool any = false;
    for (const auto& run : benchmark::networks) any = run(given) || any;
    if (any) return 0;
    std::fprintf(stderr, "%s: no network has '%s' in its name (see --list)\n", argv[0], given.net.c_str());
    return 2;
}
