// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a trainer does where the layers of its network are on several ranks, in the stages of a pipeline; and its parts
// without them.
// Tested by tests/equivalence/pipeline.cpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/stages.hpp"
#include "lockstep/partition/concept.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/train/engine/inference.hpp"
#include "lockstep/train/engine/pipeline_run.hpp"
#include "lockstep/train/engine/weights.hpp"

namespace lockstep::train {

/// The most micro-batches of a group: what the plan says, or by what a step costs.
template <class Engine>
[[nodiscard, gnu::cold]] std::size_t micro_batches_of(const Engine& of) {
    using network = typename Engine::network;
    if (const std::size_t asked = partition::micro_batches_of(of.plan.partition); asked > 0) return asked;
    return model::best_micro_batches(network::training_flops, network::parameters,
                                     (of.plan.batch + of.grid.replicas() - 1) / of.grid.replicas(), of.grid.stages);
}

/// The network, or what a rank has of it.
template <class Engine>
[[nodiscard, gnu::cold]] typename Engine::run_type make_run(Engine& of) {
    if constexpr (Engine::has_stages)
        return {
            of.plan.model,
            of.grid,
            of.group,
            model::cut_stages(model::stage_costs<typename Engine::network>(), model::begins_stage<typename Engine::net>,
                              partition::first_layers_of(of.plan.partition)),
            micro_batches_of(of),
            deal::lane_capacity(of.plan.batch, of.grid, Engine::least_rows),
            of.grid.stages * of.capacity,
            of.team,
            of.arena};
    else  // step() may fill every rank of a group
        return {of.plan.model, of.grid, of.group, of.capacity, Engine::shards * of.capacity, of.team, of.arena};
}

/// Forward, loss and backward of a pipeline, one micro-batch after the other. Returns the learning rate.
template <class Engine, class Place, class Ready>
double train_stages(Engine& of, const typename Engine::T* x, const typename Engine::label_element* y,
                    std::uint64_t step, const Place& place, const Ready& ready) {
    using T = typename Engine::T;
    using output = typename Engine::output;
    auto& strategy = of.strategy;
    strategy.times().note(report::activity::data);
    const auto before = of.run.spent();
    const double exposed = strategy.times().exposed_seconds();
    const auto scale = static_cast<T>(1.0 / static_cast<double>(of.rows.rows()));
    of.lines.train(
        of.weights().data(), x, y, of.key(layer_api::mode::training), of.observed.place(), strategy.weights_needed(),
        [&](tensor::batch<const T, output> out, const typename Engine::label_element* labels,
            tensor::batch<T, output> dy) {
            const auto [part, target] = of_rows<typename Engine::label>(out, labels, {0, out.rows});
            return static_cast<double>(of.plan.loss(part, target, dy, scale));
        },
        place, ready,
        [&] {
            strategy.forward_done();
            of.observed.start();
        },
        [&](std::size_t lane, double loss) { of.losses(lane, 0) = loss; });
    auto& seconds = of.totals.seconds;
    seconds.forward += of.run.spent().forward - before.forward - (strategy.times().exposed_seconds() - exposed);
    seconds.backward += of.run.spent().backward - before.backward;
    seconds.communication_exposed += of.run.spent().waiting - before.waiting;
    return of.tell_rate(step);
}

/// Running statistics, which a stage has of its own layers, become those of all. Collective in a pipeline.
template <class Engine>
[[gnu::cold]] void join_statistics([[maybe_unused]] const Engine& of,
                                   [[maybe_unused]] std::span<typename Engine::T> all) {
    using network = typename Engine::network;
    if constexpr (Engine::has_stages && network::statistics > 0)
        join_stages(all, of.run.layers(), of.group, statistics_before<network>);
}
/// All weights of the whole network, of those that this rank has; running statistics are those of all layers then.
/// Collective where a partition cuts the network.
template <class Engine>
[[nodiscard, gnu::cold]] std::vector<typename Engine::T> gather_whole(const Engine& of,
                                                                      std::span<const typename Engine::T> own) {
    using network = typename Engine::network;
    auto out = gather_weights<network>(own, of.grid, of.group);
    if constexpr (Engine::has_stages) {
        join_stages(std::span{out}, of.run.layers(), of.group, weights_before<network>);
        join_statistics(of, of.observed.running());
    }
    return out;
}

/// Throws core::error for a layer of another stage.
template <class Engine>
[[gnu::cold]] void require_layer([[maybe_unused]] const Engine& of, [[maybe_unused]] std::size_t layer) {
    if constexpr (Engine::has_stages)
        if (const auto own = of.own_layers(); layer < Engine::network::size && (layer < own.first || layer >= own.last))
            core::fail(core::text("layer ", layer, " is on another stage: rank ", of.grid.rank, " has stage ",
                                  of.grid.stage(), ", layers ", own.first, " to ", own.last - 1),
                       "ask on a rank of its stage, or use all_weights()");
}

}  // namespace lockstep::train
