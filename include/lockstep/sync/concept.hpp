// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concept Strategy: when ranks exchange what, and who keeps which weights, in the words of a training step.
// Tested by tests/equivalence/same_bits.cpp.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/comm/group.hpp"
#include "lockstep/comm/progress_thread.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/reduce/proposals.hpp"
#include "lockstep/reduce/sum_rule.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/commit.hpp"
#include "lockstep/sync/lane_sums.hpp"
#include "lockstep/sync/no_factors.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::sync {

/// Where backward writes the gradient of one layer: node s of the lane tree at data + s stride. Or, in place of it, its
/// rows of x and dy.
template <class T>
struct gradient_place {
    T* data = nullptr;       ///< of node 0
    std::size_t stride = 0;  ///< numbers from a node to the next
    T* factors = nullptr;  ///< as kernels::put_factors() lays them; null: the gradient is wanted
};

/// Called before each layer of a forward walk: one pointer, so that there is one walk for training and inference.
struct layer_hook {
    void* of = nullptr;                                   ///< its first argument
    void (*call)(void* of, std::size_t layer) = nullptr;  ///< null: nothing is called

    /// Layers count from 0.
    void operator()(std::size_t layer) const {
        if (call != nullptr) call(of, layer);
    }
};

/// The types of a run that a strategy is made for.
template <class T, class Network, class Optimizer, class Compressor, class Clip = no_clipping,
          class Factors = no_factors>
struct run_types {
    /// float or double.
    using value_type = T;
    /// Layers, parameters and their places.
    using network = Network;
    /// That of the plan.
    using optimizer = Optimizer;
    /// That of the plan; compress::none.
    using compressor = Compressor;
    /// That of the plan; no_clipping.
    using clip = Clip;
    static constexpr bool has_norms =
        optim::needs_norms<Optimizer> || clips<Clip>;  ///< before the first update of a step
    /// That of the plan; no_factors.
    using factors = Factors;
    /// How buckets are summed (reduce/choose.hpp).
    using method = typename reduce::with_proposals<T, Optimizer, Compressor,
                                                   typename Factors::template method<T, Compressor>>::type;
};

/// The same where gradients are added as they are, whatever the compressor.
template <class Types>
using exactly = run_types<typename Types::value_type, typename Types::network, typename Types::optimizer,
                          compress::none, typename Types::clip, typename Types::factors>;

/// Whether the settings of a plan ask for norms.
template <class Types, class Plan>
[[nodiscard]] bool measures_norms([[maybe_unused]] const Plan& of) noexcept {
    if constexpr (optim::needs_norms<typename Types::optimizer>)
        return true;
    else if constexpr (clips<typename Types::clip>)
        return of.clip.is_active();
    else
        return false;
}

/// What a trainer lends a strategy when it makes one. All of it outlives the strategy.
template <class Plan>
struct setup {
    const Plan& plan;             ///< with defaults filled in
    const partition::grid& grid;  ///< which shard, lanes and workers this rank has
    const comm::group& all;       ///< the ranks of the trainer; of a pipeline, those of this rank's stage
    const comm::group& replicas;  ///< the ranks with the same shard
    const comm::group& sharing;   ///< the ranks that share a worker with this one, where gradients have workers
    std::size_t least_bucket;     ///< parameters
    reduce::sum_rule& rule;       ///< which collective sums a bucket
    parallel::team team;          ///< the threads of this rank
    tensor::arena& arena;        ///< memory of a step is reserved here, on construction
    node::shared_parts* memory;  ///< of all ranks; null where they share none
    node::shared_parts* inside;  ///< of the ranks that share a worker with this one; null where they share none
    commit& change;              ///< agreement on the step, and what the weights are
    std::size_t rows = 0;                         ///< the most of a rank
    std::span<const std::size_t> lane_lengths{};  ///< rows of each lane in the step that runs
    bool sums_wait = false;                       ///< sums outlive their step
    parallel::block layers{0, static_cast<std::size_t>(-1)};  ///< of the network: those that this rank trains
    const comm::group* whole = nullptr;  ///< all ranks of the trainer, where `all` are those of a stage
    std::size_t stages = 1;              ///< of its pipelines: rank r of the trainer has stage r modulo so many

    /// All ranks of the trainer.
    [[nodiscard]] const comm::group& everyone() const noexcept { return whole != nullptr ? *whole : all; }

    /// The same for a strategy whose sums outlive their step.
    [[nodiscard]] setup with_sums_that_wait() const {
        setup out = *this;
        out.sums_wait = true;
        return out;
    }
};

/// What a plan names as `.sync`: settings, and the class template that a trainer makes of them. `strategy<Types>`
/// models Strategy. Optional: `static constexpr bool has_norms = true`, see measure_norms(). Without it, clipping and
/// optimizers that need norms of tensors are refused. Optional: `static constexpr bool takes_factors = true`, where
/// weights follow from the sums of the buckets of a step; `takes_proposals = true`, where the update of each step is
/// made before the gradients of the next one are there; `takes_adaptive = true`, where compress::adaptive is defined:
/// `strategy<Types>` derives from `every_step::strategy<Types>`; `machine_settings()`, a text of settings that change
/// no bit: they have to be alike on all ranks, and may be others in a resume.
template <class S>
concept StrategyChoice = std::copy_constructible<S> && requires(const S& choice) {
    { S::name } -> std::convertible_to<std::string_view>;
    requires !core::name_is_of_objects<S>;
    { choice.settings() } -> std::convertible_to<std::string>;
};

/// Optional, `static constexpr bool has_worker_weights = true`: between steps workers have weights of their own. The
/// choice says so as well. The strategy then has
/// - weights for each worker of this rank: a step walks forward and backward with those of each; `weights` of commit()
///   has all of them, one after the other.
/// - `begin_walk(set, lengths, step)`: before the walk of one of them; `lengths` are the rows of each lane. Returns how
///   many samples its gradient is a mean of.
/// - `mean(weights)`: weights for looks at them. Collective. `spread(weights)`: the first set is new, and becomes that
///   of all workers; it comes before `loaded(weights)`.
/// - `worker_of(set)`, and `speaks()`: whether this rank shows the state of its workers, of the ranks that share them.
/// - `bytes_of(step)`: what this rank sends in it. `shared_bytes(grid)`: what is reserved in memory that ranks share.
/// - optional, `static constexpr bool exchanges_by_messages = true`: that memory is for looks and synchronous steps.
template <class S>
inline constexpr bool has_worker_weights = false;
template <class S>
    requires requires { S::has_worker_weights; }
inline constexpr bool has_worker_weights<S> = S::has_worker_weights;
/// With has_worker_weights, `static constexpr bool takes_compressor = true`: what workers exchange goes through the
/// compressor of the plan, as in local_updates.
template <class S>
inline constexpr bool takes_compressor = !has_worker_weights<S>;
template <class S>
    requires requires { S::takes_compressor; }
inline constexpr bool takes_compressor<S> = S::takes_compressor;
template <class S>
inline constexpr bool takes_factors = false;
template <class S>
    requires requires { S::takes_factors; }
inline constexpr bool takes_factors<S> = S::takes_factors;
template <class S>
inline constexpr bool takes_proposals = false;
template <class S>
    requires requires { S::takes_proposals; }
inline constexpr bool takes_proposals<S> = S::takes_proposals;

template <class S>
inline constexpr bool takes_adaptive = false;
template <class S>
    requires requires { S::takes_adaptive; }
inline constexpr bool takes_adaptive<S> = S::takes_adaptive;

/// Within a fit() its ranks compute and send when they are ready: sync::parameter_server.
template <class S>
inline constexpr bool is_measured = false;
template <class S>
    requires requires { S::is_measured; }
inline constexpr bool is_measured<S> = S::is_measured;

namespace detail {
template <class Reducer>
inline constexpr bool gathers = false;
template <class T, compress::Compressor<T> C>
inline constexpr bool gathers<reduce::gathered_messages<T, C>> = true;
}  // namespace detail
/// Whether what a compressor writes can go to some workers alone: messages are gathered, and nothing is made of the
/// sum.
template <class T, class C>
inline constexpr bool sends_messages = std::is_same_v<C, compress::none>;
template <class T, class C>
    requires detail::gathers<typename reduce::method<T, C>::reducer>
inline constexpr bool sends_messages<T, C> = !compress::is_outermost<C>;

/// How the gradients of a step are added, whatever workers with weights of their own send between steps.
template <class Types, class Sync>
using step_types = std::conditional_t<has_worker_weights<Sync>, exactly<Types>, Types>;

/// The words of a step, in their order; every rank says them alike. A strategy of one's own derives from owner_updates
/// and says some of them differently: examples/own_strategy.cpp.
/// - `begin(step)`: steps count from 0.
/// - `weights_needed()`: a hook that forward calls before each layer: its weights have to be there.
/// - `forward_done()`.
/// - `gradient_location(layer)`: where backward writes. `gradient_ready(layer, step, others)`: it has; calls others()
/// if this thread may make
///   MPI calls.
/// - `reduce_loss(losses, step)`: waits for the losses of all ranks. Who has all of them knows that no rank can fail
/// any more in this step.
/// - `measure_norms(weights)`, where Types::has_norms: norms of all tensors, on all ranks alike, before any weight
///   changes. Returns the first tensor with a norm that is not finite, or the number of tensors.
/// - `commit(weights, rate, step)`: makes new weights, or lets them set off. False: numbers of this rank are not
/// finite.
/// - `visit_state(visitor)`: shows what it keeps from step to step beside the weights (tensor/state.hpp).
/// - `complete()`: weights are whole, because they are looked at. `abandon()`: after a failure, of whatever rank.
/// - `loaded(weights)`, optional: all weights of this rank are new, before the first step and after each
/// load_weights(). For what a strategy keeps of them.
/// - `prepare_state(steps)`, `restored()`, optional: what visit_state() shows is about to be overwritten with the state
/// of a run of so many steps, and has been.
/// - `visit_state_after(steps, weights, visitor)`, where prepare_state() changes which arrays there are: shows what
/// visit_state() will after it, and changes nothing. Arrays that are not there yet are shown as those of `weights`.
template <class S, class T>
concept Strategy = requires(S& strategy, const S& fixed, const tensor::arena& arena, std::span<T> weights,
                            step_sums& losses, double rate, std::uint64_t step, std::size_t layer) {
    strategy.bind(arena);
    strategy.begin(step);
    { strategy.weights_needed() } -> std::same_as<layer_hook>;
    strategy.forward_done();
    { fixed.gradient_location(layer) } -> std::same_as<gradient_place<T>>;
    strategy.gradient_ready(layer, step, [] {});
    { strategy.reduce_loss(losses, step) } -> std::same_as<double>;
    { strategy.commit(weights, rate, step) } -> std::same_as<bool>;
    strategy.complete();
    { strategy.abandon() }
    noexcept;
    strategy.visit_state([](const auto&) {});
    // What a trainer reports, and its progress thread: those of owner_updates do.
    { S::gradient_sets } -> std::convertible_to<std::size_t>;
    { strategy.times() } -> std::same_as<step_times&>;
    { strategy.thread() } -> std::same_as<comm::progress_thread*>;
    strategy.step_in_turns();
    strategy.record(nullptr);
    { fixed.bytes_per_step() } -> std::convertible_to<std::size_t>;
    { fixed.slot_numbers() } -> std::convertible_to<std::size_t>;
    { fixed.gradient_numbers() } -> std::convertible_to<std::size_t>;
    { fixed.message_bytes() } -> std::convertible_to<std::size_t>;
    { fixed.bucket_count() } -> std::convertible_to<std::size_t>;
};

/// A strategy that can measure norms.
template <class S>
inline constexpr bool has_norms = false;
template <class S>
    requires requires {
        { S::has_norms } -> std::convertible_to<bool>;
    }
inline constexpr bool has_norms<S> = S::has_norms;

}  // namespace lockstep::sync
