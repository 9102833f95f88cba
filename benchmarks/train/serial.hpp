// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the trainer costs on one rank: its steps in turns with a plain loop over the same layers, lanes, loss and
// optimizer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/hash.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"
#include "train/step.hpp"

namespace benchmark {

/// Forward, loss, backward, update, as they would be written for one process: no reducer, no owner, no watch, no
/// exchange of losses, no look at the samples. All arrays lie in an arena as the trainer's do.
template <class Net, class Optimizer>
class serial_loop {
    using network = lockstep::model::network<Net, 1>;
    using label = lockstep::loss::softmax_cross_entropy::label<typename network::output>;

public:
    serial_loop(const Net& net, const Optimizer& optimizer, double rate, std::size_t batch, std::size_t lanes,
                std::size_t threads, std::uint64_t seed)
        : net_{net},
          optimizer_{optimizer},
          rate_{rate},
          seed_{seed},
          team_{static_cast<int>(threads)},
          grid_{.lanes = lanes},
          deal_{grid_},
          walk_{net, grid_, {}, batch, batch, team_, arena_},
          weights_{arena_.reserve<float>(network::parameters)},
          gradient_{arena_.reserve<float>(network::parameters)},
          slots_{arena_.reserve<float>(Optimizer::slot_count * network::parameters)},
          running_{arena_.reserve<float>(network::statistics)},
          observed_{arena_.reserve<float>(network::statistics)} {
        arena_.allocate();
        walk_.bind(arena_, nullptr);
        deal_.whole(batch);
        lockstep::train::initialise_weights<network>(arena_[weights_], grid_, seed, lockstep::model::he{},
                                                     {0, network::size});
        lockstep::core::for_each_index<network::size>([&](auto index) {
            using layer = typename network::template layer<index>;
            std::size_t at = network::facts[index].statistics_offset, number = layer::parameters.size();
            for (const auto& one : lockstep::layer_api::statistics_of<layer>) {
                lockstep::model::initialise(one, arena_[running_].subspan(at, one.size()), 0, one.columns, seed, index,
                                            number++, lockstep::model::he{});
                at += one.size();
            }
        });
    }

    void step(const std::vector<float>& x, const std::vector<std::int32_t>& y) {
        namespace ls = lockstep;
        const std::span<float> weights = arena_[weights_], gradient = arena_[gradient_];
        const ls::train::step_key key{seed_, step_, ls::layer_api::mode::training};
        const auto out = walk_.forward(weights.data(), x.data(), deal_, key,
                                       {arena_[running_].data(), arena_[observed_].data(), network::statistics});
        const auto dy = walk_.output_gradient(deal_);
        for (const ls::parallel::block& rows : deal_.own().blocks())
            loss_ +=
                loss_of_(out.part(rows.first, rows.size()),
                         ls::tensor::targets<label, float>{y.data() + rows.first, rows.size()},
                         dy.part(rows.first, rows.size()), static_cast<float>(1.0 / static_cast<double>(deal_.rows())));
        walk_.backward(
            weights.data(), deal_, key,
            [&](std::size_t layer) {
                return ls::sync::gradient_place<float>{gradient.data() + network::offset(layer), gradient.size()};
            },
            [](std::size_t) {});
        if constexpr (network::statistics > 0) {
            for (float& one : arena_[observed_]) one /= static_cast<float>(deal_.rows());
            ls::core::for_each_index<network::size>([&](auto index) {
                constexpr std::size_t at = network::facts[index].statistics_offset,
                                      count = network::facts[index].statistics;
                if constexpr (count > 0)
                    network::template at<index>::make(net_).absorb(
                        arena_[running_].subspan(at, count),
                        std::span<const float>{arena_[observed_].subspan(at, count)});
            });
        }
        const ls::optim::update_pass<float> all{
            .weights = weights,
            .gradient = gradient,
            .slots = {arena_[slots_].data(), Optimizer::slot_count, network::parameters, network::parameters},
            .rate = rate_,
            .step = step_++};
        ls::parallel::for_blocks(team_, network::parameters, 4096, [&](ls::parallel::block part) {
            optimizer_.update(all.part(part.first, part.size()));
        });
    }

    [[nodiscard]] std::uint64_t weights_hash() const {
        const std::uint64_t hash = lockstep::core::hash(std::as_bytes(arena_[weights_]));
        return network::statistics == 0 ? hash : lockstep::core::hash(std::as_bytes(arena_[running_]), hash);
    }

private:
    Net net_;
    Optimizer optimizer_;
    double rate_;
    std::uint64_t seed_;
    lockstep::loss::softmax_cross_entropy loss_of_;
    lockstep::parallel::team team_;
    lockstep::partition::grid grid_;
    lockstep::tensor::arena arena_;
    lockstep::train::deal deal_;
    lockstep::train::network_run<float, Net, 1> walk_;
    lockstep::tensor::slice<float> weights_, gradient_, slots_, running_, observed_;
    std::uint64_t step_ = 0;
    double loss_ = 0;
};

/// Prints one JSON line: the ratio of the times of trainer.step() and of the loop, median and quartiles over turns, and
/// whether both end with the same weights. False: this network was not asked for.
template <class Net>
bool compare_with_serial(const options& given, const std::string& name, const Net& net, std::size_t default_batch) {
    namespace ls = lockstep;
    if (!given.serial || name.find(given.net) == std::string::npos) return false;
    if (given.list) {
        std::printf("%s\n", name.c_str());
        return true;
    }
    const std::size_t batch = given.batch > 0 ? given.batch : default_batch;
    constexpr double rate = 1e-4;
    const ls::optim::momentum optimizer{.beta = 0.9};
    const std::size_t lanes = std::min<std::size_t>(8, batch);
    ls::trainer trainer{ls::comm::group{}, ls::plan{.model = net,
                                                    .loss = ls::loss::softmax_cross_entropy{},
                                                    .optimizer = optimizer,
                                                    .schedule = ls::optim::constant{.rate = rate},
                                                    .batch = batch,
                                                    .lanes = lanes,
                                                    .threads = given.threads}};
    serial_loop loop{net, optimizer, rate, batch, lanes, given.threads, 1};
    using network = typename decltype(trainer)::network;
    const auto data = random_samples<network>(batch);
    // Single steps in turns: what slows the machine down slows down both.
    const auto time_of = [&](auto& of) {
        const double begin = seconds(true);
        of.step(data.x, data.y);
        return seconds(true) - begin;
    };
    (void)time_of(trainer), (void)time_of(loop);
    const double first = time_of(trainer) + time_of(loop);
    const std::size_t turns =
        std::max<std::size_t>(9, static_cast<std::size_t>(given.seconds * static_cast<double>(given.repeats) / first));
    std::vector<double> ratios, ours, plain;
    for (std::size_t turn = 0; turn < turns; ++turn) {
        const bool trainer_first = turn % 2 == 0;
        if (trainer_first) ours.push_back(time_of(trainer));
        plain.push_back(time_of(loop));
        if (!trainer_first) ours.push_back(time_of(trainer));
        ratios.push_back(ours.back() / plain.back());
    }
    const auto loop_hash = loop.weights_hash();
    const auto trainer_hash = trainer.weights_hash();
    std::printf(
        "{\"bench\": \"train\", \"case\": \"%s\", \"batch\": %zu, \"threads\": %zu, \"turns\": %zu, \"serial_ms\": "
        "%.4f, \"trainer_ms\": "
        "%.4f, "
        "\"ratio\": %.4f, \"ratio_quartiles\": [%.4f, %.4f], \"ratio_of_medians\": %.4f, \"serial_hash\": \"%016llx\", "
        "\"trainer_hash\": "
        "\"%016llx\", \"same_weights\": %s}\n",
        name.c_str(), batch, given.threads, turns, 1e3 * median(plain), 1e3 * median(ours), median(ratios),
        quantile(ratios, 0.25), quantile(ratios, 0.75), median(ours) / median(plain),
        static_cast<unsigned long long>(loop_hash), static_cast<unsigned long long>(trainer_hash),
        loop_hash == trainer_hash ? "true" : "false");
    std::fflush(stdout);
    if (loop_hash != trainer_hash) {
        std::fprintf(stderr, "lockstep: %s: the loop and the trainer ended with different weights\n", name.c_str());
        std::exit(1);
    }
    return true;
}

}  // namespace benchmark
