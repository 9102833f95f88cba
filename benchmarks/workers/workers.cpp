// SPDX-License-Identifier: BSD-3-Clause
// What workers cost: trainers of one recipe with P, 4 P and P / 2 workers on P ranks, in turns.
//   scripts/mpirun -n 2 bench_workers [--compressor topk|quantize|powersgd|terngrad] [--batch 128] [--steps 20]
//     [--turns 9]
// The network is 784-512-512-10 with momentum; top_k has ratio 0.01, quantize 4 bits, power_sgd rank 2, these three
// with error feedback. All have 4 P lanes, so that workers are all that differs. P is even.
// A JSON line for each number of workers:
//   step_ms, low_ms, high_ms  a step of fit(), on the slowest rank: median and quartiles over turns
//   ratio                     median over turns of this time and that with P workers
//   kb                        what a rank sends in a step, thousands of bytes, the most of any rank
//   memory_mb, weights_mb, gradients_mb, optimizer_mb, activations_mb, messages_mb
//                             trainer.memory(), millions of bytes, the most of any rank; residuals are messages

#include <algorithm>
#include <boost/mpi/collectives.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/program.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace ls = lockstep;
using namespace ls::layers;

namespace {

struct options {
    std::string compressor = "topk";
    std::size_t batch = 128, steps = 20, turns = 9;
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        const auto number = [&] { return benchmark::whole_number(name, value); };
        if (name == "--compressor")
            out.compressor = value;
        else if (name == "--batch")
            out.batch = number();
        else if (name == "--steps")
            out.steps = number();
        else if (name == "--turns")
            out.turns = number();
        else
            ls::core::fail("the argument " + name + " is unknown", "see the head of workers.cpp");
    }
    return out;
}

constexpr auto network = ls::sequential{ls::input<784>, dense<512>{}, relu{}, dense<512>{}, relu{}, dense<10>{}};
using sample = ls::tensor::shape<784>;
using label = ls::tensor::classes<10>;

struct samples {
    std::vector<float> x;
    std::vector<std::int32_t> y;
    explicit samples(std::size_t count) : x(count * sample::size), y(count) {
        const ls::core::random_stream random{1, ls::core::purpose::user};
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.uniform(i)) - 0.5F;
        for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<std::int32_t>(random.below(10, x.size() + i));
    }
};

template <class Compressor>
void measure(const boost::mpi::communicator& world, const options& given, const Compressor& compressor) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const samples all{8 * given.batch};
    const auto set = ls::data::in_memory<sample, label>(all.x, all.y);
    const auto recipe = [&](std::size_t workers) {
        return ls::plan{.model = network,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .schedule = ls::optim::constant{.rate = 0.001},
                        .compressor = compressor,
                        .batch = given.batch,
                        .lanes = 4 * ranks,
                        .workers = workers};
    };
    const std::size_t counts[] = {ranks, 4 * ranks, ranks / 2};
    using trainer = ls::trainer<ls::train::sound_plan<decltype(recipe(1))>>;
    std::vector<std::unique_ptr<trainer>> trainers;
    for (const std::size_t workers : counts) trainers.push_back(std::make_unique<trainer>(world, recipe(workers)));

    const auto most = [&](double value) { return boost::mpi::all_reduce(world, value, boost::mpi::maximum<double>{}); };
    constexpr std::size_t ways = std::size(counts);
    std::vector<double> times[ways], ratios[ways];
    double sent[ways] = {};
    for (std::size_t turn = 0; turn <= given.turns; ++turn) {
        double took[ways] = {};
        for (std::size_t i = 0; i < ways; ++i) {
            const std::size_t which = (turn + i) % ways;  // each is the first in every third turn
            trainer& one = *trainers[which];
            const std::size_t before = one.report().bytes_sent;
            world.barrier();
            const double begin = benchmark::seconds(true);
            one.fit(set, ls::steps{given.steps});
            took[which] = most(benchmark::seconds(true) - begin) / static_cast<double>(given.steps);
            sent[which] = static_cast<double>(one.report().bytes_sent - before) / static_cast<double>(given.steps);
        }
        if (turn == 0) continue;  // connects the ranks
        for (std::size_t which = 0; which < ways; ++which) {
            times[which].push_back(took[which]);
            ratios[which].push_back(took[which] / took[0]);
        }
    }
    for (std::size_t which = 0; which < ways; ++which) {
        const auto memory = trainers[which]->memory();
        const auto mb = [&](std::size_t bytes) { return most(1e-6 * static_cast<double>(bytes)); };
        const double whole = mb(memory.sum()), weights = mb(memory.weights), gradients = mb(memory.gradients),
                     optimizer = mb(memory.optimizer), activations = mb(memory.activations),
                     messages = mb(memory.messages), kb = most(1e-3 * sent[which]);
        if (world.rank() != 0) continue;
        std::printf(
            "{\"bench\":\"workers\",\"compressor\":\"%s\",\"ranks\":%zu,\"workers\":%zu,\"lanes\":%zu,\"batch\":%zu,"
            "\"step_ms\":%.3f,\"low_ms\":%.3f,\"high_ms\":%.3f,\"ratio\":%.3f,\"kb\":%.1f,\"memory_mb\":%.3f,"
            "\"weights_mb\":%.3f,\"gradients_mb\":%.3f,\"optimizer_mb\":%.3f,\"activations_mb\":%.3f,"
            "\"messages_mb\":%.3f}\n",
            given.compressor.c_str(), ranks, counts[which], 4 * ranks, given.batch,
            1e3 * benchmark::median(times[which]), 1e3 * benchmark::quantile(times[which], 0.25),
            1e3 * benchmark::quantile(times[which], 0.75), benchmark::median(ratios[which]), kb, whole, weights,
            gradients, optimizer, activations, messages);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const options given = read(argc, argv);
        if (world.size() % 2 != 0)
            ls::core::fail(ls::core::text(world.size(), " ranks cannot share half as many workers equally"),
                           "start an even number of ranks");
        if (given.compressor == "topk")
            measure(world, given, ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.01}});
        else if (given.compressor == "quantize")
            measure(world, given, ls::compress::error_feedback{ls::compress::quantize{.bits = 4}});
        else if (given.compressor == "powersgd")
            measure(world, given, ls::compress::error_feedback{ls::compress::power_sgd{.rank = 2}});
        else if (given.compressor == "terngrad")
            measure(world, given, ls::compress::terngrad{});
        else
            ls::core::fail("the compressor '" + given.compressor + "' is unknown",
                           "give topk, quantize, powersgd or terngrad");
        return 0;
    });
}
