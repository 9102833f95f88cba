// SPDX-License-Identifier: BSD-3-Clause
// A parameter server beside synchronous steps where the last rank is slow: trainers of one recipe, in turns.
//   scripts/mpirun -n 2 bench_parameter_server [--net mlp|lenet] [--batch 128] [--row-us 0] [--steps 40] [--turns 5]
// The last rank sleeps row-us microseconds for each row that it reads. The networks are 784-512-512-10 and the LeNet of
// examples/train, with momentum. A JSON line for each strategy; "with a thread" is with a progress thread:
//   step_ms, low_ms, high_ms  an update, on the slowest rank: median and quartiles over turns
//   ratio                     median over turns of the time of synchronous steps and this time
//   slow_share                of the gradients, those of the last rank
//   staleness                 of a gradient, the mean
//   kb                        what a rank sends for an update, thousands of bytes, the mean over ranks
//   same_bits                 whether a replay of the arrivals has the same weights

#include <algorithm>
#include <boost/mpi/collectives.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
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
#include "lockstep/sync/asynchronous.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace ls = lockstep;
using namespace ls::layers;

namespace {

struct options {
    std::string net = "mlp";
    std::size_t batch = 128, steps = 40, turns = 5, row_us = 0;
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        const auto number = [&] { return benchmark::whole_number(name, value); };
        if (name == "--net" && (value == "mlp" || value == "lenet"))
            out.net = value;
        else if (name == "--batch")
            out.batch = number();
        else if (name == "--row-us")
            out.row_us = value == "0" ? 0 : number();
        else if (name == "--steps")
            out.steps = number();
        else if (name == "--turns")
            out.turns = number();
        else
            ls::core::fail("the argument " + name + " " + value + " is unknown",
                           "see the head of parameter_server.cpp");
    }
    return out;
}

/// Digits in memory, which a slow rank sleeps over.
struct slow_digits {
    using sample = ls::data::digits::sample;
    using label = ls::data::digits::label;
    std::vector<float> x;
    std::vector<std::int32_t> y;
    std::chrono::microseconds for_each_row{};

    explicit slow_digits(std::size_t count) : x(count * sample::size), y(count) {
        const ls::data::digits drawn{.count = count};
        std::vector<std::uint64_t> rows(count);
        for (std::size_t row = 0; row < count; ++row) rows[row] = row;
        drawn.read(rows, ls::tensor::batch<float, sample>{x.data(), count}, std::span{y});
    }
    [[nodiscard]] std::size_t size() const noexcept { return y.size(); }
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<float, sample> out,
              std::span<std::int32_t> labels) const {
        if (for_each_row.count() > 0) std::this_thread::sleep_for(for_each_row * rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::copy_n(x.data() + rows[i] * sample::size, sample::size, out.data + i * sample::size);
            labels[i] = y[rows[i]];
        }
    }
};

/// One way to train, with its turns.
template <class Trainer>
struct way {
    const char* name;
    Trainer trainer;
    std::vector<double> times{}, ratios{};
    double sent = 0;

    void run(const boost::mpi::communicator& world, const options& given, const slow_digits& set, bool counts) {
        const auto before = trainer.report();
        world.barrier();
        const double begin = benchmark::seconds(true);
        trainer.fit(set, ls::steps{given.steps});
        const double took =
            boost::mpi::all_reduce(world, benchmark::seconds(true) - begin, boost::mpi::maximum<double>{});
        if (!counts) return;
        times.push_back(took / static_cast<double>(given.steps));
        sent = static_cast<double>(trainer.report().bytes_sent - before.bytes_sent) / static_cast<double>(given.steps);
    }
    void print(const boost::mpi::communicator& world, const options& given, double share, double staleness, bool same) {
        const double kb = 1e-3 * boost::mpi::all_reduce(world, sent, std::plus<>{}) / world.size();
        if (world.rank() != 0) return;
        std::printf(
            "{\"bench\":\"parameter_server\",\"net\":\"%s\",\"sync\":\"%s\",\"ranks\":%d,\"batch\":%zu,\"row_us\":%zu,"
            "\"step_ms\":%.3f,\"low_ms\":%.3f,\"high_ms\":%.3f,\"ratio\":%.3f,\"slow_share\":%.3f,\"staleness\":%.2f,"
            "\"kb\":%.1f,\"same_bits\":%s}\n",
            given.net.c_str(), name, world.size(), given.batch, given.row_us, 1e3 * benchmark::median(times),
            1e3 * benchmark::quantile(times, 0.25), 1e3 * benchmark::quantile(times, 0.75), benchmark::median(ratios),
            share, staleness, kb, same ? "true" : "false");
    }
};

template <class Net>
void measure(const boost::mpi::communicator& world, const options& given, const Net& net) {
    slow_digits set{given.batch * given.steps};
    const slow_digits quick = set;
    if (world.rank() + 1 == world.size()) set.for_each_row = std::chrono::microseconds{given.row_us};
    const auto with = [&](const char* name, const auto& sync, bool progress_thread) {
        ls::trainer trainer{world, ls::plan{.model = net,
                                            .loss = ls::loss::softmax_cross_entropy{},
                                            .schedule = ls::optim::constant{.rate = 0.001},
                                            .sync = sync,
                                            .batch = given.batch,
                                            .workers = 1,
                                            .progress_thread = progress_thread}};
        return way<decltype(trainer)>{name, std::move(trainer)};
    };
    auto synchronous = with("every step", ls::sync::every_step{}, false);
    auto server = with("parameter server", ls::sync::parameter_server{}, false);
    auto threaded = with("parameter server with a thread", ls::sync::parameter_server{}, true);
    for (std::size_t turn = 0; turn <= given.turns; ++turn) {  // the first one connects the ranks
        if (turn % 2 == 0) synchronous.run(world, given, set, turn > 0);
        server.run(world, given, set, turn > 0);
        threaded.run(world, given, set, turn > 0);
        if (turn % 2 == 1) synchronous.run(world, given, set, true);
        if (turn == 0) continue;
        for (auto* one : {&server, &threaded}) one->ratios.push_back(synchronous.times.back() / one->times.back());
        synchronous.ratios.push_back(1);
    }
    synchronous.print(world, given, 1.0 / world.size(), 0, true);
    for (auto* one : {&server, &threaded}) {
        const ls::sync::arrival_list list = one->trainer.arrivals();
        double slow = 0, stale = 0;
        for (std::size_t i = 0; i < list.entries.size(); ++i) {
            slow += list.entries[i].learner + 1 == static_cast<std::size_t>(world.size()) ? 1 : 0;
            stale += static_cast<double>(i - list.entries[i].version);
        }
        auto again = with("replay", ls::sync::asynchronous{.replay = list}, false);
        again.trainer.fit(quick, ls::steps{list.entries.size()});
        const auto count = static_cast<double>(list.entries.size());
        one->print(world, given, slow / count, stale / count,
                   again.trainer.weights_hash() == one->trainer.weights_hash());
    }
}

}  // namespace

int main(int argc, char** argv) {
    return ls::program(
        argc, argv,
        [&](const boost::mpi::communicator& world) {
            const options given = read(argc, argv);
            if (given.net == "mlp")
                measure(world, given,
                        ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<512>{}, relu{}, dense<512>{}, relu{},
                                       dense<10>{}});
            else
                measure(world, given,
                        ls::sequential{ls::input<28, 28, 1>, conv<32, 5>{}, relu{}, max_pool<2>{}, conv<64, 5>{},
                                       relu{}, max_pool<2>{}, flatten{}, dense<512>{}, relu{}, dense<10>{}});
            return 0;
        },
        boost::mpi::threading::serialized);
}
