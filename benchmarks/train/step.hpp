// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One whole training step of a network on one process: forward, loss, backward, update.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"
#include "train/networks.hpp"

namespace benchmark {

/// Random samples and labels that stay where they are. Prints one JSON line: medians over the repeats.
template <class Net>
void measure_steps(const options& given, const std::string& name, const Net& net, std::size_t default_batch) {
    namespace ls = lockstep;
    if (name.find(given.net) == std::string::npos) return;
    if (given.list) {
        std::printf("%s\n", name.c_str());
        return;
    }
    const std::size_t batch = given.batch > 0 ? given.batch : default_batch;
    ls::trainer trainer{ls::comm::group{}, ls::plan{.model = net,
                                                    .loss = ls::loss::softmax_cross_entropy{},
                                                    .optimizer = ls::optim::momentum{.beta = 0.9},
                                                    .schedule = ls::optim::constant{.rate = 1e-4},
                                                    .batch = batch,
                                                    .lanes = std::min<std::size_t>(8, batch),
                                                    .threads = given.threads}};
    using network = typename decltype(trainer)::network;
    const ls::core::random_stream random{1, ls::core::purpose::user, 1};
    std::vector<float> x(batch * network::input::size);
    std::vector<std::int32_t> y(batch);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.uniform(i)) - 0.5F;
    for (std::size_t i = 0; i < batch; ++i)
        y[i] = static_cast<std::int32_t>(random.uniform(i) * static_cast<float>(network::output::size - 1));
    trainer.step(x, y);
    std::vector<double> times, peaks, fractions;
    const auto threads = static_cast<int>(given.threads);
    for (std::size_t repeat = 0; repeat < given.repeats; ++repeat) {
        const double peak = fma_peak<float>(threads, true);
        const double begin = seconds(true);
        std::size_t steps = 0;
        do {
            trainer.step(x, y);
            ++steps;
        } while (seconds(true) - begin < given.seconds);
        const double took = (seconds(true) - begin) / static_cast<double>(steps);
        times.push_back(took);
        peaks.push_back(peak);
        fractions.push_back(network::training_flops * static_cast<double>(batch) / took * 1e-9 / peak);
    }
    const double time = median(times);
    const auto report = trainer.report();
    const double all = report.seconds.total() / 100;
    std::printf(
        "{\"bench\": \"train\", \"case\": \"%s\", \"batch\": %zu, \"threads\": %zu, \"ms\": %.3f, \"samples_per_second\": %.1f, "
        "\"gflops\": %.1f, \"peak_gflops\": %.1f, \"fraction_of_peak\": %.3f, \"forward_percent\": %.1f, \"backward_percent\": %.1f, "
        "\"update_percent\": %.1f, \"memory_mb\": %.1f, \"repeats\": %zu}\n",
        name.c_str(), batch, given.threads, time * 1e3, static_cast<double>(batch) / time,
        network::training_flops * static_cast<double>(batch) / time * 1e-9, median(peaks), median(fractions), report.seconds.forward / all,
        report.seconds.backward / all, report.seconds.update / all, static_cast<double>(trainer.memory_bytes()) / 1e6, given.repeats);
    std::fflush(stdout);
}

}  // namespace benchmark
