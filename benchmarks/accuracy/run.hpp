// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One run of ResNet-20 on CIFAR-10 with a compressor of one type.

#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <variant>

#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/augmented.hpp"
#include "lockstep/data/cifar10.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/pad_crop.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/train/trainer.hpp"

namespace benchmark {

namespace ls = lockstep;

struct options {
    std::string data;
    std::string method = "none";
    std::size_t epochs = 8;
    std::size_t batch = 128;
    std::size_t workers = 8;
    double rate = 0.2;
    double momentum = 0.9;
    double weight_decay = 5e-4;
    std::uint64_t seed = 1;
    std::size_t train_samples = 50'000;
    std::size_t test_samples = 10'000;
};

inline auto usual_optimizer(const options& of) {
    return ls::optim::weight_decay{.rate = of.weight_decay,
                                   .inner = ls::optim::momentum{.beta = of.momentum, .nesterov = true}};
}

/// Prints a JSON line on rank 0. Collective.
template <class Compressor, class Optimizer>
int run(const boost::mpi::communicator& world, const options& of, const Compressor& compressor,
        const Optimizer& optimizer) {
    const ls::data::augmented train{ls::data::cifar10{of.data, ls::data::part::training, of.train_samples},
                                    ls::data::pad_crop{.padding = 4}, ls::data::flip{}};
    const ls::data::cifar10 test{of.data, ls::data::part::test, of.test_samples};
    const std::size_t per_epoch = (train.size() + of.batch - 1) / std::max<std::size_t>(of.batch, 1);
    ls::trainer trainer{
        world, ls::plan{.model = ls::models::resnet<20>,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .optimizer = optimizer,
                        .schedule = ls::optim::one_cycle{.peak = of.rate,
                                                         .total = std::max<std::size_t>(1, of.epochs * per_epoch),
                                                         .rise = 0.2,
                                                         .falling = ls::optim::curve::linear},
                        .compressor = compressor,
                        .batch = of.batch,
                        .lanes = of.workers,
                        .workers = of.workers,
                        .seed = of.seed}};
    trainer.fit(train, ls::epochs{of.epochs}, ls::validate{test});
    const std::string hash = ls::core::hexadecimal(trainer.weights_hash());
    const auto report = trainer.report();
    if (world.rank() != 0) return 0;
    std::string reached;
    double seconds = 0;
    for (const auto& epoch : report.epochs) {
        reached += ls::core::text(reached.empty() ? "" : ", ", ls::core::fixed(100 * *epoch.test->accuracy, 2));
        seconds += epoch.seconds;
    }
    std::printf(
        "{\"bench\": \"accuracy\", \"net\": \"resnet-20\", \"method\": \"%s\", \"seed\": %lu, \"epochs\": %zu, "
        "\"rate\": %g, \"bytes\": %lu, \"seconds\": %.1f, \"weights_hash\": \"%s\", \"test_accuracy\": [%s]}\n",
        of.method.c_str(), static_cast<unsigned long>(of.seed), of.epochs, of.rate,
        static_cast<unsigned long>(report.bytes_sent), seconds, hash.c_str(), reached.c_str());
    return 0;
}

/// With the compressor that is chosen, if it is one of these kinds.
template <class... Kinds, class Chosen>
std::optional<int> run_one_of(const boost::mpi::communicator& world, const options& of, const Chosen& chosen) {
    std::optional<int> done;
    const auto try_one = [&](const auto* one) {
        if (one != nullptr) done = run(world, of, *one, usual_optimizer(of));
    };
    (try_one(std::get_if<Kinds>(&chosen)), ...);
    return done;
}

}  // namespace benchmark
