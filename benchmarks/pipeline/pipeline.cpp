// SPDX-License-Identifier: BSD-3-Clause
// A pipeline of two stages beside data parallelism: trainers of one recipe, in turns.
//   scripts/mpirun -n 2 bench_pipeline [--net dense|lenet] [--batch 128] [--steps 5] [--turns 5]
// The networks are 784-2048-2048-2048-2048-10 and the LeNet of examples/train, with momentum and 8 lanes.
// A JSON line for each partition:
//   step_ms, low_ms, high_ms  a step of fit(), on the slowest rank: median and quartiles over turns
//   ratio                     median over turns of the time of data parallelism and this time
//   micro_batches             of a step
//   waits                     the least share of its steps that a rank waits for others
//   kb                        what a rank sends in a step, thousands of bytes, the most of any rank
//   memory_mb                 trainer.memory(), millions of bytes, the most of any rank
//   same_bits                 whether weights and state are those of data parallelism

#include <algorithm>
#include <boost/mpi/collectives.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace ls = lockstep;
using namespace ls::layers;

namespace {

struct options {
    std::string net = "dense";
    std::size_t batch = 128, steps = 5, turns = 5;
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        const auto number = [&] { return benchmark::whole_number(name, value); };
        if (name == "--net" && (value == "dense" || value == "lenet"))
            out.net = value;
        else if (name == "--batch")
            out.batch = number();
        else if (name == "--steps")
            out.steps = number();
        else if (name == "--turns")
            out.turns = number();
        else
            ls::core::fail("the argument " + name + " " + value + " is unknown", "see the head of pipeline.cpp");
    }
    return out;
}

/// One way to train, with its turns.
template <class Plan>
struct way {
    ls::trainer<Plan> trainer;
    std::vector<double> times{}, ratios{};
    double sent = 0, waits = 0;

    void run(const boost::mpi::communicator& world, const options& given, bool counts) {
        const ls::data::digits set{.count = given.batch * 4};
        const auto before = trainer.report();
        world.barrier();
        const double begin = benchmark::seconds(true);
        trainer.fit(set, ls::steps{given.steps});
        const double took =
            boost::mpi::all_reduce(world, benchmark::seconds(true) - begin, boost::mpi::maximum<double>{});
        if (!counts) return;
        const auto after = trainer.report();
        times.push_back(took / static_cast<double>(given.steps));
        sent = static_cast<double>(after.bytes_sent - before.bytes_sent) / static_cast<double>(given.steps);
        waits += (after.seconds.communication_exposed - before.seconds.communication_exposed) / took /
                 static_cast<double>(given.turns);
    }
    void print(const boost::mpi::communicator& world, const options& given, const char* name, bool same) {
        const double kb = boost::mpi::all_reduce(world, 1e-3 * sent, boost::mpi::maximum<double>{}),
                     least = boost::mpi::all_reduce(world, waits, boost::mpi::minimum<double>{}),
                     mb = boost::mpi::all_reduce(world, 1e-6 * static_cast<double>(trainer.memory().sum()),
                                                 boost::mpi::maximum<double>{});
        if (world.rank() != 0) return;
        std::printf(
            "{\"bench\":\"pipeline\",\"net\":\"%s\",\"partition\":\"%s\",\"ranks\":%d,\"batch\":%zu,\"step_ms\":%.3f,"
            "\"low_ms\":%.3f,\"high_ms\":%.3f,\"ratio\":%.3f,\"micro_batches\":%zu,\"waits\":%.3f,\"kb\":%.1f,"
            "\"memory_mb\":%.3f,\"same_bits\":%s}\n",
            given.net.c_str(), name, world.size(), given.batch, 1e3 * benchmark::median(times),
            1e3 * benchmark::quantile(times, 0.25), 1e3 * benchmark::quantile(times, 0.75), benchmark::median(ratios),
            trainer.micro_batches(), least, kb, mb, same ? "true" : "false");
    }
};

template <class Net>
void measure(const boost::mpi::communicator& world, const options& given, const Net& net) {
    const auto with = [&](const auto& partition) {
        const ls::plan plan{.model = net,
                            .loss = ls::loss::softmax_cross_entropy{},
                            .schedule = ls::optim::constant{.rate = 0.001},
                            .partition = partition,
                            .batch = given.batch};
        return way<ls::train::sound_plan<std::remove_const_t<decltype(plan)>>>{ls::trainer{world, plan}};
    };
    auto data = with(ls::partition::data{});
    auto stages = with(ls::partition::hybrid{ls::partition::data{}, ls::partition::pipeline<2>{}});
    for (std::size_t turn = 0; turn <= given.turns; ++turn) {  // the first one connects the ranks
        if (turn % 2 == 0) data.run(world, given, turn > 0);
        stages.run(world, given, turn > 0);
        if (turn % 2 == 1) data.run(world, given, true);
        if (turn == 0) continue;
        data.ratios.push_back(1);
        stages.ratios.push_back(data.times.back() / stages.times.back());
    }
    const bool same = data.trainer.weights_hash() == stages.trainer.weights_hash() &&
                      data.trainer.state_hash() == stages.trainer.state_hash();
    data.print(world, given, "data", true);
    stages.print(world, given, "pipeline of 2", same);
}

}  // namespace

int main(int argc, char** argv) {
    return ls::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const options given = read(argc, argv);
        if (given.net == "dense")
            measure(world, given,
                    ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<2048>{}, relu{}, dense<2048>{}, relu{},
                                   dense<2048>{}, relu{}, dense<2048>{}, relu{}, dense<10>{}});
        else
            measure(world, given,
                    ls::sequential{ls::input<28, 28, 1>, conv<32, 5>{}, relu{}, max_pool<2>{}, conv<64, 5>{}, relu{},
                                   max_pool<2>{}, flatten{}, dense<512>{}, relu{}, dense<10>{}});
        return 0;
    });
}
