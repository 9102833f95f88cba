// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One whole training step of a network on one process, or on all ranks: forward, loss, backward, average, update.

#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"
#include "train/networks.hpp"

namespace benchmark {

/// Random samples and labels of a minibatch.
struct samples {
    std::vector<float> x;
    std::vector<std::int32_t> y;
};
template <class Network>
samples random_samples(std::size_t rows) {
    const lockstep::core::random_stream random{1, lockstep::core::purpose::user, 1};
    samples out{std::vector<float>(rows * Network::input::size), std::vector<std::int32_t>(rows)};
    for (std::size_t i = 0; i < out.x.size(); ++i) out.x[i] = static_cast<float>(random.uniform(i)) - 0.5F;
    for (std::size_t i = 0; i < rows; ++i)
        out.y[i] = static_cast<std::int32_t>(random.uniform(i) * static_cast<float>(Network::output::size - 1));
    return out;
}

/// Steps on samples that stay where they are. Prints one JSON line: medians over the repeats. False: this network was
/// not asked for.
template <class Net, class Partition>
bool measure_steps_of(const options& given, const std::string& name, const Net& net, std::size_t default_batch,
                      const Partition& partition) {
    namespace ls = lockstep;
    if (given.serial || name.find(given.net) == std::string::npos) return false;
    if (given.list) {
        std::printf("%s\n", name.c_str());
        return true;
    }
    const std::size_t batch = given.batch > 0 ? given.batch : default_batch;
    const auto ranks = given.transport.empty() ? ls::comm::group{} : ls::comm::group{boost::mpi::communicator{}};
    ls::trainer trainer{ranks, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::momentum{.beta = 0.9},
                                        .schedule = ls::optim::constant{.rate = 1e-4},
                                        .partition = partition,
                                        .batch = batch,
                                        .lanes = std::min<std::size_t>(8, batch),
                                        .threads = given.threads,
                                        .transport = given.transport == "messages"        ? ls::transport::messages
                                                     : given.transport == "shared_memory" ? ls::transport::shared_memory
                                                                                          : ls::transport::automatic}};
    using network = typename decltype(trainer)::network;
    // The rows that fit() would deal this rank.
    const auto own = ls::train::deal::own_rows(batch, trainer.grid());
    const auto [x, y] = random_samples<network>(own.size());
    trainer.step(x, y);
    const double first = seconds(true);
    trainer.step(x, y);
    // As many on all ranks.
    const auto steps = ranks.gather_all(static_cast<std::size_t>(given.seconds / (seconds(true) - first)) + 1)[0];
    const auto warm = trainer.report().seconds;  // of steps that are not measured
    std::vector<double> times, peaks, fractions;
    const auto threads = static_cast<int>(given.threads);
    for (std::size_t repeat = 0; repeat < given.repeats; ++repeat) {
        const double peak = fma_peak<float>(threads, true) * static_cast<double>(ranks.size());
        const double begin = seconds(true);
        for (std::size_t step = 0; step < steps; ++step) trainer.step(x, y);
        const double took = (seconds(true) - begin) / static_cast<double>(steps);
        times.push_back(took);
        peaks.push_back(peak);
        fractions.push_back(network::training_flops * static_cast<double>(batch) / took * 1e-9 / peak);
    }
    if (ranks.rank() != 0) return true;
    const double time = median(times);
    const auto spent = trainer.report().seconds - warm;
    const double all = spent.total() / 100;
    std::printf(
        "{\"bench\": \"train\", \"case\": \"%s\", \"batch\": %zu, \"ranks\": %zu, \"partition\": \"%s\", "
        "\"transport\": \"%s\", "
        "\"threads\": %zu, \"ms\": %.3f, "
        "\"samples_per_second\": %.1f, "
        "\"gflops\": %.1f, \"peak_gflops\": %.1f, \"fraction_of_peak\": %.3f, \"forward_percent\": %.1f, "
        "\"backward_percent\": %.1f, "
        "\"update_percent\": %.1f, \"exposed_percent\": %.1f, \"memory_mb\": %.1f, \"repeats\": %zu}\n",
        name.c_str(), batch, ranks.size(), Partition::name.data(), trainer.transport().c_str(), given.threads,
        time * 1e3, static_cast<double>(batch) / time,
        network::training_flops * static_cast<double>(batch) / time * 1e-9, median(peaks), median(fractions),
        spent.forward / all, spent.backward / all, spent.update / all, spent.communication_exposed / all,
        static_cast<double>(trainer.memory_bytes()) / 1e6, given.repeats);
    std::fflush(stdout);
    return true;
}

/// The same by the partition that was asked for. `CutsDense`: also with the dense layers cut among pairs of ranks, a
/// trainer of its own to the compiler.
template <bool CutsDense = false, class Net>
bool measure_steps(const options& given, const std::string& name, const Net& net, std::size_t default_batch) {
    namespace part = lockstep::partition;
    if (given.partition.empty()) return measure_steps_of(given, name, net, default_batch, part::data{});
    if constexpr (CutsDense)
        return measure_steps_of(given, name, net, default_batch, part::hybrid{part::data{}, part::model<2>{}});
    return false;
}

}  // namespace benchmark
