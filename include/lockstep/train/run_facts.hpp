// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a trainer says of itself, without a collective call where a member does not say otherwise.
// Tested by tests/training/memory.cpp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/engine/engine.hpp"

namespace lockstep::train {

/// A trainer's engine, which stays where it is when the trainer moves. One that was moved from throws core::error.
template <class Plan>
class owned_engine {
public:
    /// An engine made of these arguments.
    template <class... From>
    [[gnu::cold]] explicit owned_engine(std::in_place_t, const From&... from)
        : engine_{std::make_unique<engine<Plan>>(from...)} {}
    /// The other one is empty afterwards.
    owned_engine(owned_engine&&) noexcept = default;
    /// The same; gives back what was here.
    owned_engine& operator=(owned_engine&& from) noexcept {
        if (this != &from) give_back();
        engine_ = std::move(from.engine_);
        return *this;
    }
    ~owned_engine() { give_back(); }

    /// Throws core::error where the trainer was moved from.
    [[nodiscard]] engine<Plan>& operator*() const {
        if (engine_ == nullptr)
            core::fail("this trainer has been moved from and has no weights any more",
                       "use the one that it was moved to");
        return *engine_;
    }
    /// The same.
    [[nodiscard]] engine<Plan>* operator->() const { return &**this; }

private:
    /// After a failure the memory that MPI may still read stays until the end of the program.
    void give_back() noexcept {
        if (engine_ != nullptr && engine_->ranks.size() > 1 && engine_->ranks.aborts().failed())
            comm::leak_until_exit(std::move(engine_->arena));
        engine_.reset();
    }

    std::unique_ptr<engine<Plan>> engine_;
};

/// For headers of this folder that work on a trainer from outside.
struct engine_access;

/// The plain queries of a trainer.
template <class Plan>
class run_facts {
    using core_type = engine<Plan>;
    using T = typename core_type::T;

public:
    /// Whether all ranks have to look at the weights together: weights_hash(), all_weights().
    static constexpr bool looks_are_collective = core_type::looks_are_collective;

    /// What the weights on this rank are, also after a failure: those after how many steps, and whether they can be
    /// used.
    [[nodiscard]] sync::weights_state weights_state() const { return core_->change.state(); }

    /// The plan.
    [[nodiscard]] const Plan& recipe() const { return core_->plan; }
    /// What decides every bit of the run beside its data, a line for each name and value: equal texts, equal bits, on
    /// any number of ranks. A schedule is there by its settings(), if it has any, and by its values at six steps.
    [[nodiscard]] std::string recipe_text() const { return to_text(recipe_of(core_->plan, core_->grid.workers)); }
    /// Which replica, shard, lanes and workers this rank has.
    [[nodiscard]] const partition::grid& grid() const { return core_->grid; }
    /// All ranks of the trainer, in a communicator of its own.
    [[nodiscard]] const comm::group& ranks() const { return core_->ranks; }
    /// Bytes of the arena on this rank: all that a step needs.
    [[nodiscard]] std::size_t memory_bytes() const {
        return core_->arena.bytes() - (core_->weight_slice.count - core_->trained_weights().size()) * sizeof(T);
    }
    /// What they are for.
    [[nodiscard]] report::memory_by_kind memory() const {
        report::memory_by_kind out{
            .weights = (core_->trained_weights().size() + core_->observed.running().size()) * sizeof(T),
            .gradients = (core_->strategy.gradient_numbers() + further_gradients()) * sizeof(T),
            .optimizer = core_->strategy.slot_numbers() * sizeof(T),
            .activations = core_->run.memory().bytes,
            .scratch = core_->run.memory().largest_scratch(),
            .messages = core_->strategy.message_bytes()};
        out.data = memory_bytes() - out.sum();
        return out;
    }
    /// How gradients and weights go from rank to rank, and why so.
    [[nodiscard]] const std::string& transport() const { return core_->memory.text(); }
    /// Numbers in the slots of the optimizer on this rank, and in further weights that a strategy keeps.
    [[nodiscard]] std::size_t optimizer_numbers() const { return core_->strategy.slot_numbers(); }
    /// Into how many sums a step divides the gradients.
    [[nodiscard]] std::size_t buckets() const { return core_->strategy.bucket_count(); }
    /// How messages are summed: a table of algorithms by bytes of a bucket, and the costs it was chosen by. Empty on
    /// one rank and where all gradients go through shared memory.
    [[nodiscard]] std::string all_reduce_algorithm() const {
        return core_->memory.is_shared() && !core_->adds_inside() ? "" : core_->rule.text();
    }
    /// What this rank sends in a step of a full minibatch to average gradients and share weights; of weights that are
    /// averaged now and then, the mean over such a period, once they are.
    [[nodiscard]] std::size_t averaging_bytes() const { return core_->strategy.bytes_per_step(); }
    /// The same in this step, from 0, where weights are averaged now and then: before the first local step a whole sum.
    [[nodiscard]] std::size_t averaging_bytes(std::uint64_t step) const { return core_->bytes_of(step); }
    /// How many steps at the beginning add gradients, where later ones are local: 0 with other strategies.
    [[nodiscard]] std::uint64_t synchronous_steps() const {
        if constexpr (requires { core_->strategy.synchronous_steps(); }) return core_->strategy.synchronous_steps();
        return 0;
    }
    /// Which stage of a pipeline has the layer; 0 without stages.
    [[nodiscard]] std::size_t stage_of([[maybe_unused]] std::size_t layer) const {
        if constexpr (core_type::has_stages)
            for (std::size_t stage = 0; stage < core_->run.layers().size(); ++stage)
                if (layer < core_->run.layers()[stage].last) return stage;
        return 0;
    }
    /// Micro-batches of a step in a pipeline; 1 without stages.
    [[nodiscard]] std::size_t micro_batches() const {
        if constexpr (core_type::has_stages) return core_->run.micro_batch_count();
        return 1;
    }
    /// Whether the layer sends its rows of x and dy in place of its gradient: see plan::factors.
    [[nodiscard]] bool sends_factors(std::size_t layer) const {
        if constexpr (core_type::types::factors::are_used) return core_->strategy.sends_factors(layer);
        return false;
    }
    /// Which compressor each layer has had from which step on; `replay` of compress::adaptive repeats it.
    [[nodiscard]] auto compression_choices() const requires compress::adapts<typename core_type::compressor_type>
    {
        return decltype(core_->plan.compressor.replay)::value_type::of(core_->strategy.choices());
    }
    /// Which learner's gradient made which update, of which weights and minibatch, from the first step of the run on:
    /// of sync::parameter_server. `replay` of sync::asynchronous repeats it.
    [[nodiscard]] auto arrivals() const requires sync::is_measured<decltype(core_type::plan.sync)> {
        return core_->strategy.arrivals();
    }
    /// A line for each decision of this run on it.
    [[nodiscard]] const std::vector<std::string>& compression_decisions() const requires
        compress::adapts<typename core_type::compressor_type>
    {
        return core_->strategy.decisions();
    }
    /// What this rank sends between layers for a full minibatch: 0 without a partition that cuts the network, in which
    /// it is collective.
    [[nodiscard]] std::size_t redistribution_bytes() {
        if constexpr (core_type::cuts_network) {
            deal full{core_->stage};
            full.whole(core_->plan.batch, core_type::least_rows);
            return core_->run.bytes_for(full);
        }
        return 0;
    }
    /// Whether the weights of a best epoch are kept: trainer::load_best() can take them back.
    [[nodiscard]] bool keeps_best() const { return !core_->best.weights.empty(); }
    /// What has been done so far, with the seconds and bytes of this rank.
    [[nodiscard]] report::totals report() const {
        auto out = core_->totals;
        out.seconds = core_->strategy.times().added_to(core_->totals.seconds);
        return out;
    }

protected:
    /// From the trainer.
    [[gnu::cold]] run_facts(const Plan& plan, const comm::group& ranks, const comm::watched_call& call)
        : core_{std::in_place, plan, ranks, call} {}

    /// Sums of micro-batches, in numbers.
    [[nodiscard]] std::size_t further_gradients() const {
        if constexpr (core_type::has_stages) return core_->run.sum_numbers();
        return 0;
    }

    owned_engine<Plan> core_;  ///< all of the trainer

private:
    friend engine_access;
};

/// Reads the engine of a trainer.
struct engine_access {
    /// Throws core::error where the trainer was moved from.
    template <class Plan>
    [[nodiscard]] static engine<Plan>& of(const run_facts<Plan>& trainer) {
        return *trainer.core_;
    }
};

}  // namespace lockstep::train
