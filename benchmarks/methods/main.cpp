// SPDX-License-Identifier: BSD-3-Clause
// Steps of training without compression, with top_k of 1 %, and with compress::adaptive, in turns.
//   benchmarks/cluster/run --hosts 2 --rate 100mbit -- bench_adaptive [--net lenet|cd_dnn] [--batch 64] [--steps 60]
//     [--turns 3] [--transport automatic|messages]
// A JSON line for each of the three:
//   step_ms   median of the last third of the steps of fit(), on the slowest rank: median over turns
//   all_ms    the mean of all steps, with those in which something is decided: median over turns
//   ratio     step_ms of no compression / step_ms
// and the decisions of the last run with compress::adaptive, on stderr.

#include <algorithm>
#include <boost/mpi/collectives.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/comm/program.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/models/cd_dnn.hpp"
#include "lockstep/models/lenet5.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace ls = lockstep;

namespace {

struct options {
    std::string net = "lenet", transport = "automatic";
    std::size_t batch = 64, steps = 60, turns = 3;
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        std::size_t* const number = name == "--batch"   ? &out.batch
                                    : name == "--steps" ? &out.steps
                                    : name == "--turns" ? &out.turns
                                                        : nullptr;
        if (name == "--net" && (value == "lenet" || value == "cd_dnn"))
            out.net = value;
        else if (name == "--transport" && (value == "automatic" || value == "messages"))
            out.transport = value;
        else if (number != nullptr && (*number = std::strtoul(value.c_str(), nullptr, 10)) > 0)
            continue;
        else
            ls::core::fail(name + " " + value + " is not known",
                           "write --net, --batch, --steps, --turns or --transport");
    }
    return out;
}

struct step_clock {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    std::vector<double> at;
    void on_step(const ls::report::step_event&) { at.push_back(benchmark::seconds(true)); }
};

struct times {
    double last, all;
};

/// Milliseconds, of the slowest rank.
template <class Net, class Set, class Compressor>
times run(const boost::mpi::communicator& world, const options& given, const Net& net, const Set& set,
          const Compressor& compressor) {
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::momentum{},
                                        .schedule = ls::optim::constant{.rate = 0.001},
                                        .compressor = compressor,
                                        .batch = given.batch,
                                        .transport = given.transport == "messages" ? ls::transport::messages
                                                                                   : ls::transport::automatic}};
    step_clock clock;
    clock.at.reserve(given.steps + 1);
    clock.at.push_back(benchmark::seconds(true));
    trainer.fit(set, ls::steps{given.steps}, clock);
    std::vector<double> last;
    for (std::size_t i = clock.at.size() - clock.at.size() / 3; i < clock.at.size(); ++i)
        last.push_back(1e3 * (clock.at[i] - clock.at[i - 1]));
    const times mine{benchmark::median(last),
                     1e3 * (clock.at.back() - clock.at.front()) / static_cast<double>(given.steps)};
    if constexpr (ls::compress::adapts<Compressor>)
        if (world.rank() == 0)
            for (const std::string& line : trainer.compression_decisions()) std::fprintf(stderr, "%s\n", line.c_str());
    return {boost::mpi::all_reduce(world, mine.last, boost::mpi::maximum<double>{}),
            boost::mpi::all_reduce(world, mine.all, boost::mpi::maximum<double>{})};
}

template <class Net, std::size_t Classes>
void compare(const boost::mpi::communicator& world, const options& given, const Net& net,
             const ls::tensor::classes<Classes>&) {
    using sample = typename Net::input;
    constexpr std::size_t rows = 512;
    std::vector<float> x(rows * sample::size);
    std::vector<std::int32_t> y(rows);
    const ls::core::random_stream draws{1, ls::core::purpose::user};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draws.uniform(i) - 0.5F;
    for (std::size_t i = 0; i < rows; ++i) y[i] = static_cast<std::int32_t>(i % Classes);
    const auto set = ls::data::in_memory<sample, ls::tensor::classes<Classes>>(x, y);
    const char* const names[] = {"none", "top_k", "adaptive"};
    std::vector<double> last[3], all[3];
    for (std::size_t turn = 0; turn < given.turns; ++turn)
        for (std::size_t k = 0; k < 3; ++k) {
            const std::size_t which = (k + turn) % 3;
            const times found = which == 0   ? run(world, given, net, set, ls::compress::none{})
                                : which == 1 ? run(world, given, net, set,
                                                   ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.01}})
                                             : run(world, given, net, set, ls::compress::adaptive{});
            last[which].push_back(found.last);
            all[which].push_back(found.all);
        }
    if (world.rank() != 0) return;
    const double dense = benchmark::median(last[0]);
    for (std::size_t which = 0; which < 3; ++which)
        std::printf(
            "{\"net\": \"%s\", \"ranks\": %d, \"batch\": %zu, \"compressor\": \"%s\", \"step_ms\": %.3f, \"all_ms\": "
            "%.3f, \"ratio\": %.3f}\n",
            given.net.c_str(), world.size(), given.batch, names[which], benchmark::median(last[which]),
            benchmark::median(all[which]), dense / benchmark::median(last[which]));
}

}  // namespace

int main(int argc, char** argv) {
    return ls::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const options given = read(argc, argv);
        if (given.net == "lenet")
            compare(world, given, ls::models::lenet5, ls::tensor::classes<10>{});
        else
            compare(world, given, ls::models::cd_dnn, ls::tensor::classes<9304>{});
        return 0;
    });
}
