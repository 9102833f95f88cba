// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One training run of a network for pictures of 32 x 32 pixels in ten classes; everything else comes from the options.

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/data/augmented.hpp"
#include "lockstep/data/cifar10.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/pad_crop.hpp"
#include "lockstep/data/shapes.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/report/progress.hpp"
#include "lockstep/train/summary.hpp"
#include "lockstep/train/trainer.hpp"
#include "../run_files.hpp"
#include "options.hpp"
#include "section.hpp"

namespace example {

namespace ls = lockstep;

template <class Trainer>
void write_report(Trainer& trainer, const options& of, chosen_logs& logs) {
    const std::string hash = ls::core::hexadecimal(trainer.weights_hash());
    if (trainer.grid().rank != 0) return;
    if (!of.quiet) ls::report::print(std::cout, ls::core::text("weights ", hash, "\n"));
    if (logs.report.empty()) return;
    const auto report = trainer.report();
    nlohmann::json epochs = nlohmann::json::array();
    for (const auto& epoch : report.epochs)
        epochs.push_back({{"epoch", epoch.epoch},
                          {"loss", epoch.loss},
                          {"seconds", epoch.seconds},
                          {"test_loss", epoch.test->loss},
                          {"test_accuracy", *epoch.test->accuracy}});
    const auto& plan = trainer.recipe();
    const nlohmann::json all{{"data", of.data},
                             {"algorithm", of.direct ? "direct" : "winograd"},
                             {"batch", of.batch},
                             {"lanes", of.lanes},
                             {"optimizer", ls::train::describe(plan.optimizer)},
                             {"schedule", ls::train::describe(plan.schedule)},
                             {"seed", of.seed},
                             {"shift", of.shift},
                             {"smoothing", of.smoothing},
                             {"held_out", of.held_out},
                             {"ranks", report.ranks},
                             {"threads", report.threads},
                             {"epochs", epochs},
                             {"steps", report.steps},
                             {"samples_per_second", report.samples_per_second()},
                             {"weights_hash", hash}};
    // Names of files need not be UTF-8.
    ls::report::write_whole(logs.report, all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

template <class Net, class Train, class Test>
int with_data(const boost::mpi::communicator& world, const options& of, const Net& net, const Train& pictures,
              const Test& test) {
    const ls::data::augmented train{pictures, ls::data::pad_crop{.padding = of.shift}, ls::data::flip{}};
    const std::size_t batch = std::max<std::size_t>(of.batch, 1), per_epoch = (train.size() + batch - 1) / batch;
    const std::size_t total =
        of.steps > 0 ? of.steps : ls::core::checked_product("steps of so many epochs", of.epochs, per_epoch);
    ls::trainer trainer{world,
                        ls::plan{.model = net,
                                 .loss = ls::softmax_cross_entropy{.smoothing = of.smoothing},
                                 .optimizer = ls::optim::weight_decay{.rate = of.weight_decay,
                                                                      .inner = ls::optim::momentum{.beta = of.momentum,
                                                                                                   .nesterov = true}},
                                 .schedule = ls::optim::one_cycle{.peak = of.rate,
                                                                  .total = std::max<std::size_t>(total, 1),
                                                                  .rise = of.rise,
                                                                  .falling = ls::optim::curve::linear},
                                 .batch = of.batch,
                                 .lanes = of.lanes,
                                 .seed = of.seed,
                                 .threads = of.threads}};
    const std::string table = ls::summary(trainer);
    if (world.rank() == 0 && !of.quiet)
        ls::report::print(std::cout, ls::core::text("lockstep      ", ls::data::name_of(train), ": ", train.size(),
                                                    " samples to train, ", test.size(),
                                                    of.held_out > 0 ? " held out to test\n" : " to test\n", table));
    if (of.plan_only) return 0;
    chosen_logs logs{of, world.rank() == 0, table, "ResNet-20", "", 30};
    chosen_checkpoints checkpoints{{of.checkpoint, of.checkpoint_every}};
    if (goes_on(world, of.resume, of.checkpoint)) {
        trainer.resume(of.resume);
        if (world.rank() == 0 && !of.quiet)
            ls::report::print(std::cout, ls::core::text("goes on after step ", trainer.report().steps, "\n"));
    }
    if (of.steps > 0)
        trainer.fit(train, ls::until_step{of.steps}, ls::validate{test}, checkpoints, logs);
    else
        trainer.fit(train, ls::until_epoch{of.epochs}, ls::validate{test}, checkpoints, logs);
    if (!of.save_weights.empty()) trainer.save_weights(of.save_weights);
    write_report(trainer, of, logs);
    return 0;
}

/// The first training samples to train on, and to test on the last ones where some are held out, else the test set.
template <class Net, class Pictures, class MakeTest>
int with_parts(const boost::mpi::communicator& world, const options& of, const Net& net, const Pictures& train,
               const MakeTest& test_set) {
    if (of.held_out >= train.size())
        ls::core::fail(
            ls::core::text("--held-out ", of.held_out, " leaves nothing of ", train.size(), " training samples"),
            "hold out fewer, such as 5000");
    const std::size_t used = train.size() - of.held_out;
    const section<Pictures> part{train, 0, used};
    if (of.held_out > 0) return with_data(world, of, net, part, section<Pictures>{train, used, of.held_out});
    const Pictures test = test_set();
    return with_data(world, of, net, part, section<Pictures>{test, 0, test.size()});
}

template <class Net>
int run(const boost::mpi::communicator& world, const options& of, const Net& net) {
    if (of.data == "shapes")
        return with_parts(world, of, net, ls::data::shapes{.count = of.train_samples},
                          [&] { return ls::data::shapes{.count = of.test_samples, .first = 1'000'000'000}; });
    return with_parts(world, of, net, ls::data::cifar10{of.data, ls::data::part::training, of.train_samples},
                      [&] { return ls::data::cifar10{of.data, ls::data::part::test, of.test_samples}; });
}

}  // namespace example
