// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One training run for a network and a number of shards that the compiler knows; everything else comes from the
// options.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/core/hash.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/data/mnist.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/report/progress.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/sync/asynchronous.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/every_step.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/sync/choco_sgd.hpp"
#include "lockstep/sync/gossip.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/summary.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/train/trainer.hpp"
#include "../run_files.hpp"
#include "compressors.hpp"
#include "options.hpp"
#include "report.hpp"

namespace example {

namespace ls = lockstep;

/// The learning rate that the options name: a user's own schedule is any callable on the step.
struct chosen_schedule {
    bool cosine = true;
    ls::optim::warmup_cosine falling;

    static constexpr std::string_view name = "chosen";
    [[nodiscard]] std::string settings() const {
        return cosine ? "cosine " + falling.settings() : ls::core::text("constant ", falling.peak);
    }
    void check() const { falling.check(); }
    double operator()(std::uint64_t step) const { return cosine ? falling(step) : falling.peak; }
};

/// The data that the options name, behind one type: trainers are compiled once.
class chosen_data {
public:
    using sample = ls::tensor::shape<28, 28, 1>;
    using label = ls::tensor::classes<10>;

    explicit chosen_data(ls::data::digits drawn) : drawn_{drawn} {}
    explicit chosen_data(const std::string& files) : files_{files} {}

    [[nodiscard]] std::string name() const { return files_ ? ls::data::name_of(*files_) : ls::data::name_of(*drawn_); }
    [[nodiscard]] std::string settings() const { return files_ ? files_->settings() : drawn_->settings(); }
    [[nodiscard]] std::size_t size() const { return files_ ? files_->size() : drawn_->size(); }
    template <class T>
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<T, sample> x, std::span<std::int32_t> y) const {
        files_ ? files_->read(rows, x, y) : drawn_->read(rows, x, y);
    }

private:
    std::optional<ls::data::digits> drawn_;
    std::optional<ls::data::mnist> files_;
};

/// Collective: every rank calls it.
template <class Trainer>
report_facts facts_of(Trainer& trainer) {
    using network = typename Trainer::network;
    const auto totals = trainer.report();
    std::uint64_t most = 0;
    for (const std::uint64_t sent : trainer.ranks().gather_all(std::uint64_t{totals.bytes_sent}))
        most = std::max(most, sent);
    std::vector<layer_facts> layers;
    for (const auto& row : ls::train::layer_rows<network>(trainer.recipe().model))
        layers.push_back({std::string{row.name}, row.output, row.parameters, row.flops, row.sharded});
    return {.grid = trainer.grid(),
            .threads = trainer.recipe().threads,
            .input = ls::tensor::to_text<typename network::input>(),
            .transport = trainer.transport(),
            .layers = std::move(layers),
            .parameters = network::parameters,
            .forward_flops = network::forward_flops,
            .training_flops = network::training_flops,
            .averaging_bytes = trainer.averaging_bytes(),
            .between_layers = trainer.redistribution_bytes(),
            .memory_bytes = trainer.memory_bytes(),
            .memory = trainer.memory(),
            .totals = totals,
            .sent = most,
            .hash = ls::core::hexadecimal(trainer.weights_hash())};
}

template <class Trainer>
void write_report(Trainer& trainer, const options& of, chosen_logs& logs, const ls::compress::statistics& messages,
                  const std::vector<std::string>& names) {
    report_facts facts = facts_of(trainer);
    if (trainer.grid().rank != 0) return;
    for (std::size_t tensor = 0; tensor < messages.size(); ++tensor)
        if (messages.of(tensor).messages > 0)
            facts.messages.emplace_back(messages.name_of(tensor, names), messages.of(tensor));
    if (!of.quiet) ls::report::print(std::cout, ls::core::text("weights ", facts.hash, "\n"));
    if (!logs.report.empty()) ls::report::write_whole(logs.report, report_text(facts, of) + "\n");
}

/// What the options choose beside the network.
struct chosen_files {
    const boost::mpi::communicator& world;
    const options& of;
    const chosen_data& train;
    const chosen_data& test;
    const ls::compress::statistics& messages;
};

/// As `3.dense.weight`; none where a tensor is in several shards.
template <class Network>
std::vector<std::string> tensor_names(std::size_t shards) {
    std::vector<std::string> out;
    if (shards == 1)
        for (const auto& one : ls::weight_layout<Network>) out.push_back(one.full_name());
    return out;
}

template <class Plan>
int fit(const chosen_files& files, const Plan& plan) {
    const auto& [world, of, train, test, messages] = files;
    ls::trainer trainer{world, plan};
    const std::string table = ls::summary(trainer);
    if (world.rank() == 0 && !of.quiet)
        ls::report::print(std::cout, ls::core::text("lockstep      ", ls::data::name_of(train), ": ", train.size(),
                                                    " samples to train, ", test.size(), " to test\n", table));
    if (of.plan_only) return 0;
    chosen_logs logs{of, world.rank() == 0, table, of.net, of.timeline.empty() ? "" : of.timeline + ".svg",
                     5,  &messages};
    ls::timeline timeline{of.timeline, 50, of.timeline.empty() ? "" : of.timeline + ".svg"};
    chosen_checkpoints checkpoints{
        {.folder = of.checkpoint, .every = of.checkpoint_every, .write_behind = of.checkpoint_behind}};
    if (goes_on(world, of.resume, of.checkpoint)) {
        trainer.resume(of.resume, of.may_change);
        if (world.rank() == 0 && !of.quiet)
            ls::report::print(std::cout, ls::core::text("goes on after step ", trainer.report().steps, "\n"));
    } else if (!of.load_weights.empty()) {
        trainer.load_weights(of.load_weights);
    }
    if (of.steps > 0)
        trainer.fit(train, ls::until_step{of.steps}, ls::validate{test}, checkpoints, timeline, logs);
    else
        trainer.fit(train, ls::until_epoch{of.epochs}, ls::validate{test}, checkpoints, timeline, logs);
    if (!of.save_weights.empty()) trainer.save_weights(of.save_weights);
    const auto names = tensor_names<typename decltype(trainer)::network>(trainer.grid().shards);
    write_report(trainer, of, logs, messages, names);
    if constexpr (ls::compress::adapts<decltype(plan.compressor)>)
        if (world.rank() == 0 && !of.compress_choices.empty()) trainer.compression_choices().write(of.compress_choices);
    if constexpr (std::is_same_v<decltype(plan.sync), ls::sync::asynchronous>)
        if (world.rank() == 0 && !of.sync_arrivals.empty())
            ls::sync::arrivals_of(plan.sync, trainer.grid().workers, plan.seed, trainer.report().steps)
                .write(of.sync_arrivals);
    if constexpr (std::is_same_v<decltype(plan.sync), ls::sync::parameter_server>)
        if (world.rank() == 0 && !of.sync_arrivals.empty()) trainer.arrivals().write(of.sync_arrivals);
    if (of.compress_statistics && world.rank() == 0 && !of.quiet) ls::report::print(std::cout, messages.text(names));
    return 0;
}

/// An infinite norm is no clipping, so one type serves both.
template <std::size_t Shards, std::size_t Stages = 1, class Net, class Optimizer, class Compressor, class Sync,
          class Clip, class Factors = ls::sync::no_factors>
int with(const chosen_files& files, const Net& net, const Optimizer& optimizer, const Compressor& compressor,
         const Sync& sync, const Clip& clip, const Factors& factors = {}) {
    const auto& [world, of, train, test, unused] = files;
    (void)unused;
    const std::size_t per_epoch =
        (train.size() + std::max<std::size_t>(of.batch, 1) - 1) / std::max<std::size_t>(of.batch, 1);
    const std::size_t total =
        of.steps > 0 ? of.steps : ls::core::checked_product("steps of so many epochs", of.epochs, per_epoch);
    std::optional<std::chrono::duration<double>> timeout;
    if (of.timeout >= 0) timeout = std::chrono::duration<double>{of.timeout};
    // What goes on from a checkpoint has its workers.
    std::size_t workers = of.workers;
    if (workers == 0 && goes_on(world, of.resume, of.checkpoint)) workers = ls::workers_in(world, of.resume, timeout);
    const auto plan_for = [&](auto partition) {
        return ls::plan{.model = net,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .optimizer = optimizer,
                        .schedule = chosen_schedule{of.schedule == "cosine",
                                                    {.peak = of.rate,
                                                     .warmup = std::min<std::size_t>(100, total / 10),
                                                     .total = std::max<std::size_t>(total, 1)}},
                        .partition = partition,
                        .compressor = compressor,
                        .sync = sync,
                        .clip = clip,
                        .factors = factors,
                        .batch = of.batch,
                        .lanes = of.lanes,
                        .workers = workers,
                        .seed = of.seed,
                        .threads = of.threads,
                        .progress_thread = of.progress == "thread",
                        .transport = of.transport == "messages"        ? ls::transport::messages
                                     : of.transport == "shared_memory" ? ls::transport::shared_memory
                                                                       : ls::transport::automatic,
                        .all_reduce = of.all_reduce,
                        .timeout = timeout};
    };
    // A model partition is a hybrid one with a single group; only the check of the grid differs.
    if (!of.replicates)
        (void)ls::partition::make_grid<ls::partition::model<Shards>>(static_cast<std::size_t>(world.rank()),
                                                                     static_cast<std::size_t>(world.size()), of.lanes);
    if constexpr (Stages > 1) {
        return fit(files, plan_for(ls::partition::hybrid{ls::partition::data{}, ls::partition::pipeline<Stages>{}}));
    } else if constexpr (Shards == 1) {
        return fit(files, plan_for(ls::partition::data{}));
    } else {
        return fit(files, plan_for(ls::partition::hybrid{ls::partition::data{}, ls::partition::model<Shards>{}}));
    }
}

/// The files that the options name, for f(files, compressor).
template <class F>
int with_files(const boost::mpi::communicator& world, const options& of, const F& f) {
    const bool drawn = of.data == "digits";
    const chosen_data train =
        drawn ? chosen_data{ls::data::digits{.count = of.train_samples}} : chosen_data{of.data + "/train"};
    const chosen_data test = drawn ? chosen_data{ls::data::digits{.count = of.test_samples, .first = 1'000'000'000}}
                                   : chosen_data{of.data + "/t10k"};
    ls::compress::statistics messages;
    return f(chosen_files{world, of, train, test, messages},
             choose_compressor(of.compress, of.compress_statistics ? &messages : nullptr,
                               of.sync.starts_with("choco")));
}

/// The usual optimizer.
inline auto momentum_of(const options& of) {
    return ls::optim::weight_decay{.rate = of.weight_decay,
                                   .inner = ls::optim::momentum{.beta = of.momentum, .nesterov = true}};
}

// The whole run. Explicit instantiations in a file each keep compilation parallel.

/// With a compressor that has a trainer type of its own, for whole networks.
template <class Net>
int run_compressed(const boost::mpi::communicator& world, const options& of, const Net& net) {
    return with_files(world, of, [&](const chosen_files& files, const chosen_compressor& compressor) {
        constexpr ls::sync::every_step every;
        constexpr ls::sync::no_clipping unclipped;
        const auto momentum = momentum_of(of);
        if (const auto* one = std::get_if<with_momentum_of_workers>(&compressor))
            return with<1>(
                files, net,
                ls::optim::deep_gradient{.momentum = of.momentum,
                                         .clip = std::isfinite(of.clip) ? of.clip : 0,
                                         .decay = of.weight_decay},
                one->compressor, every, unclipped);
        if (const auto* one = std::get_if<with_frozen_variance>(&compressor))
            return with<1>(files, net,
                           ls::optim::one_bit_adam{.warm_up = one->warm_up, .decay = of.weight_decay},
                           one->compressor, every, unclipped);
        if (const auto* one = std::get_if<ls::compress::adaptive>(&compressor)) {
            auto telling = *one;
            if (!of.quiet)
                telling.tell = [](std::string_view line) { ls::report::print(std::cout, std::string{line}); };
            return with<1>(files, net, momentum, telling, every, unclipped);
        }
        const ls::sync::clip_by_global_norm clip{.norm = of.clip};
        if (const auto* one = std::get_if<summed_twice>(&compressor))
            return with<1>(files, net, momentum, *one, every, clip);
        if (const auto* one = std::get_if<counted>(&compressor))
            return with<1>(files, net, momentum, *one, every, clip);
        if (const auto* one = std::get_if<half_sums>(&compressor))
            return with<1>(files, net, momentum, *one, every, clip);
        if (const auto* one = std::get_if<bfloat16_sums>(&compressor))
            return with<1>(files, net, momentum, *one, every, clip);
        if (const auto* one = std::get_if<streamed>(&compressor))
            return with<1>(files, net, momentum, *one, every, clip);
        if (const auto* one = std::get_if<ls::compress::global_top_k>(&compressor))
            return with<1>(files, net, momentum, *one, every, clip);
        if (const auto* one = std::get_if<scaled>(&compressor)) return with<1>(files, net, momentum, *one, every, clip);
        return with<1>(files, net, momentum, std::get<summed>(compressor), every, clip);
    });
}

/// Workers have weights of their own, or learners are at a parameter server.
template <class Net>
int run_of_workers(const boost::mpi::communicator& world, const options& of, const Net& net) {
    return with_files(world, of, [&](const chosen_files& files, const chosen_compressor& compressor) {
        const auto momentum = momentum_of(of);
        constexpr ls::compress::none whole;
        constexpr ls::sync::no_clipping unclipped;
        const ls::sync::local_sgd local{.period = of.period};
        if (const auto* one = std::get_if<gathered>(&compressor)) {
            const ls::sync::choco_sgd choco{.graph = of.graph, .gamma = of.gamma};
            if (of.period == 0) return with<1>(files, net, momentum, *one, choco, unclipped);
            return with<1>(files, net, momentum, *one, local, unclipped);
        }
        if (of.period > 0) return with<1>(files, net, momentum, whole, local, unclipped);
        if (of.sync.starts_with("gossip"))
            return with<1>(files, net, momentum, whole, ls::sync::gossip{.graph = of.graph}, unclipped);
        if (of.sync.starts_with("server"))
            return with<1>(
                files, net, momentum, whole,
                ls::sync::parameter_server{.bound = of.bound, .ranks_per_learner = of.ranks_per_learner}, unclipped);
        ls::sync::asynchronous server{.learners = of.learners, .bound = of.bound};
        if (!of.replay.empty()) server.replay = ls::sync::arrival_list::read(of.replay);
        return with<1>(files, net, momentum, whole, server, unclipped);
    });
}

/// In a pipeline.
template <std::size_t Stages, class Net>
int run_in_stages(const boost::mpi::communicator& world, const options& of, const Net& net) {
    return with_files(world, of, [&](const chosen_files& files, const chosen_compressor&) {
        constexpr ls::sync::no_clipping unclipped;
        return with<1, Stages>(files, net, momentum_of(of), ls::compress::none{}, ls::sync::every_step{}, unclipped);
    });
}

/// Without a compressor, or with one whose messages are gathered.
template <std::size_t Shards, class Net>
int run(const boost::mpi::communicator& world, const options& of, const Net& net) {
    return with_files(world, of, [&](const chosen_files& files, const chosen_compressor& compressor) {
        const auto decaying = [&](auto inner) {
            return ls::optim::weight_decay{.rate = of.weight_decay, .inner = inner};
        };
        const auto momentum = momentum_of(of);
        constexpr ls::compress::none whole;
        constexpr ls::sync::every_step every;
        const ls::sync::clip_by_global_norm clip{.norm = of.clip};
        constexpr ls::sync::no_clipping unclipped;
        if (const auto* one = std::get_if<gathered>(&compressor))
            return with<Shards>(files, net, momentum, *one, every, clip);
        if (of.sync == "delayed") return with<Shards>(files, net, momentum, whole, ls::sync::delayed{}, unclipped);
        if (of.optimizer == "adam") return with<Shards>(files, net, decaying(ls::optim::adam{}), whole, every, clip);
        // These are for whole networks, or compiled for them alone.
        if constexpr (Shards == 1) {
            if (of.factors != "never")
                return with<Shards>(files, net, momentum, whole, every, unclipped,
                                    ls::sync::factors{.always = of.factors == "always"});
            if (of.optimizer == "lars")
                return with<Shards>(files, net, ls::optim::lars{.momentum = of.momentum, .decay = of.weight_decay},
                                    whole, every, clip);
        }
        return with<Shards>(files, net, momentum, whole, every, clip);
    });
}

}  // namespace example
