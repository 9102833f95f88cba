// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What goes together in a plan: a variable template for each question that checks.hpp asserts, because g++ prints the
// arguments of one that fails.
// Tested by tests/build_failures.

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/comm/group.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/traits.hpp"
#include "lockstep/loss/concept.hpp"
#include "lockstep/metrics/concept.hpp"
#include "lockstep/model/binding.hpp"
#include "lockstep/model/initialise.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/model/stages.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/partition/concept.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/report/events.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/train/plan.hpp"

namespace lockstep::train {

template <class T>
inline constexpr bool is_sequential = false;
template <class Input, class... Specs>
inline constexpr bool is_sequential<model::sequential<Input, Specs...>> = true;

template <class T>
inline constexpr bool is_plan = false;
template <class... Parts>
inline constexpr bool is_plan<plan<Parts...>> = true;
template <class Model, std::size_t... Node>
[[nodiscard]] constexpr bool layers_keep_checks(std::index_sequence<Node...>) noexcept {
    return (core::keeps_check<typename Model::template spec<Node>> && ...);
}
/// Of a model that of each layer, also within branches.
template <class Part>
inline constexpr bool keeps_checks = core::keeps_check<Part>;
template <class Input, class... Specs>
inline constexpr bool keeps_checks<model::sequential<Input, Specs...>> =
    layers_keep_checks<model::sequential<Input, Specs...>>(
        std::make_index_sequence<model::sequential<Input, Specs...>::size>{});
template <class... Parts>
inline constexpr bool keeps_checks<plan<Parts...>> = (keeps_checks<std::remove_const_t<Parts>> && ...);
template <class T>
inline constexpr bool has_sequential = false;
template <class Model, class... Others>
inline constexpr bool has_sequential<plan<Model, Others...>> = is_sequential<Model>;

/// The kernels are there for float and double.
template <class Precision>
inline constexpr bool is_precision = false;
template <class Precision>
    requires requires { typename Precision::type; }
inline constexpr bool is_precision<Precision> =
    std::is_same_v<typename Precision::type, float> || std::is_same_v<typename Precision::type, double>;
/// `real<float>` stands in for what is no precision.
template <class Precision>
using sound_precision = std::conditional_t<is_precision<Precision>, Precision, real<float>>;
template <class Initialise>
inline constexpr bool is_initialisation = model::Initialisation<Initialise>;
template <class Optimizer, class T>
inline constexpr bool is_optimizer = optim::Optimizer<Optimizer, T>;
template <class Schedule>
inline constexpr bool is_schedule = optim::LrSchedule<Schedule>;
template <class Sampler>
inline constexpr bool is_sampler = data::Sampler<Sampler>;
template <class Partition>
inline constexpr bool is_partition = partition::Partition<Partition>;
/// A pipeline cuts the list of layers alone.
template <class Partition>
inline constexpr bool cuts_once = true;
template <partition::Partition Partition>
inline constexpr bool cuts_once<Partition> = Partition::stages == 1 || Partition::shards == 1;
/// Each stage has a layer to begin with.
template <class Net, std::size_t Stages>
inline constexpr bool has_layers_for = Stages == 1 || Stages <= model::most_stages<Net>;
template <class Compressor, class T>
inline constexpr bool is_compressor = compress::Compressor<Compressor, T> || compress::Reduction<Compressor, T>;
/// Of compress::adaptive the strategy is there as well, from sync/adaptive.hpp.
template <class Compressor, class T>
    requires compress::adapts<Compressor>
inline constexpr bool is_compressor<Compressor, T> = requires { typename reduce::method<T, Compressor>::reducer; };
/// A compressor that changes from step to step is defined for owners of strips of a whole network alone.
template <class Compressor, class Sync, class Partition, class Optimizer, class Clip, class T>
inline constexpr bool adaptive_takes_plan =
    !compress::adapts<Compressor> ||
    (sync::takes_adaptive<Sync> && Partition::shards * Partition::stages == 1 && !optim::needs_norms<Optimizer> &&
     !sync::clips<Clip> && !optim::Proposes<Optimizer, T>);
/// What a choice makes for these types is a strategy.
template <class Sync, class Types>
inline constexpr bool is_sync = false;
template <sync::StrategyChoice Sync, class Types>
    requires requires { typename Sync::template strategy<Types>; }
inline constexpr bool is_sync<Sync, Types> =
    sync::Strategy<typename Sync::template strategy<Types>, typename Types::value_type>;
/// A trainer can make it.
template <class Sync, class Types, class Plan>
inline constexpr bool is_made_of_setup = true;
template <class Sync, class Types, class Plan>
    requires is_sync<Sync, Types>
inline constexpr bool is_made_of_setup<Sync, Types, Plan> =
    std::is_constructible_v<typename Sync::template strategy<Types>, sync::setup<Plan>>;
/// The checks look at the choice, the trainer at what it makes.
template <class Sync, class Types>
inline constexpr bool agrees_on_worker_weights = true;
template <class Sync, class Types>
    requires is_sync<Sync, Types>
inline constexpr bool agrees_on_worker_weights<Sync, Types> =
    sync::has_worker_weights<Sync> == sync::has_worker_weights<typename Sync::template strategy<Types>>;
/// What says that it takes compress::adaptive has what chooses, and so compresses.
template <class Sync, class Types>
inline constexpr bool makes_choices = true;
template <class Sync, class Types>
    requires(is_sync<Sync, Types>&& compress::adapts<typename Types::compressor>)
inline constexpr bool makes_choices<Sync, Types> = requires(const typename Sync::template strategy<Types>& strategy) {
    strategy.choices();
};
/// What says that it measures norms, or takes factors, has the words for that.
template <class Sync, class Types>
inline constexpr bool has_promised_words = true;
template <class Sync, class Types>
    requires(is_sync<Sync, Types>&& sync::has_norms<Sync>&& Types::has_norms)
inline constexpr bool has_promised_words<Sync, Types> =
    requires(typename Sync::template strategy<Types> & strategy, std::span<typename Types::value_type> weights) {
    { strategy.measure_norms(weights) } -> std::convertible_to<std::size_t>;
};
template <class Sync, class Types>
    requires(is_sync<Sync, Types>&& sync::takes_factors<Sync>&& Types::factors::are_used)
inline constexpr bool has_promised_words<Sync, Types> =
    requires(const typename Sync::template strategy<Types>& strategy, std::size_t layer) {
    { strategy.sends_factors(layer) } -> std::convertible_to<bool>;
};
template <class Clip>
inline constexpr bool is_clip = std::is_same_v<Clip, sync::no_clipping> || sync::clips<Clip>;
/// Whether a strategy can do what clipping and the optimizer need.
template <class Sync, class Optimizer, class Clip>
inline constexpr bool has_norms_for = sync::has_norms<Sync> || !(optim::needs_norms<Optimizer> || sync::clips<Clip>);
/// Clipping knows its factor when all norms are there; a norm rule would have needed it before.
template <class Optimizer, class Clip, class T>
inline constexpr bool norms_take_clip = !(optim::HasNormRule<Optimizer, T> && sync::clips<Clip>);
/// Workers with weights of their own are made of whole networks,
template <class Sync, class Partition>
inline constexpr bool holds_whole_networks =
    !sync::has_worker_weights<Sync> || Partition::shards * Partition::stages == 1;
/// change all of their weights, for the mean of equal numbers may differ from them in the last bit,
template <class Sync, class Optimizer>
inline constexpr bool averages_all_tensors = !sync::has_worker_weights<Sync> || !optim::has_frozen_tensors<Optimizer>;
/// and average numbers as they are, unless the strategy says otherwise.
template <class Sync, class Compressor>
inline constexpr bool sends_as_asked = sync::takes_compressor<Sync> || std::is_same_v<Compressor, compress::none>;
/// A learner of a parameter server has a whole network, pushes gradients as they are, and nothing else.
template <class Sync, class Partition, class Compressor, class Net>
inline constexpr bool server_takes_plan =
    !sync::is_measured<Sync> || (Partition::shards * Partition::stages == 1 &&
                                 std::is_same_v<Compressor, compress::none> && model::network<Net, 1>::statistics == 0);
/// And sync::asynchronous, which replays its runs, no frozen tensors.
template <class Sync, class Optimizer>
inline constexpr bool server_takes_optimizer = !sync::is_measured<Sync> || !optim::has_frozen_tensors<Optimizer>;
/// What an optimizer that proposes needs: workers, whose messages it may want to see,
template <class Optimizer, class Compressor, class T>
inline constexpr bool proposes_to_workers =
    !optim::Proposes<Optimizer, T> || !std::is_same_v<Compressor, compress::none>;
template <class Optimizer, class Compressor, class T>
inline constexpr bool sees_messages =
    !optim::SeesMessages<Optimizer, T> || !(compress::Reduction<Compressor, T> || compress::cuts_streams<Compressor>);
/// and a strategy and a clipping that know what it means.
template <class Optimizer, class Sync, class Clip, class T>
inline constexpr bool has_plan_of_proposals =
    !optim::Proposes<Optimizer, T> || (sync::takes_proposals<Sync> && !sync::clips<Clip>);
template <class Factors>
inline constexpr bool is_factors = requires(const Factors& factors) {
    { Factors::are_used } -> std::convertible_to<bool>;
    { factors.settings() } -> std::convertible_to<std::string>;
};
/// What a plan with factors cannot have beside them.
template <class Compressor, bool AreUsed>
inline constexpr bool factors_take_compressor = !AreUsed || std::is_same_v<Compressor, compress::none>;
template <class Partition, bool AreUsed>
inline constexpr bool factors_take_partition = !AreUsed || Partition::shards * Partition::stages == 1;
template <class Sync, bool AreUsed>
inline constexpr bool factors_take_sync = !AreUsed || sync::takes_factors<Sync>;
template <class Optimizer, class Clip, bool AreUsed>
inline constexpr bool factors_take_norms = !AreUsed || !(optim::needs_norms<Optimizer> || sync::clips<Clip>);
template <class Net, bool AreUsed>
inline constexpr bool factors_take_network = !AreUsed;
template <class Net>
inline constexpr bool factors_take_network<Net, true> = []<std::size_t... Index>(std::index_sequence<Index...>) {
    return (layer_api::traits_of<typename model::bound<Net, 1, Index>::whole>.has_factors || ...);
}
(std::make_index_sequence<Net::size>{});
template <class Loss>
inline constexpr bool is_named = !std::is_same_v<Loss, loss_left_out>;
template <class Loss, class Output, class T>
inline constexpr bool is_loss_for = loss::Loss<Loss, T, Output>;
template <class Loss, class Output>
inline constexpr bool has_outputs_for = Output::size >= loss::least_outputs<Loss>;
template <class Loss, class Output>
inline constexpr bool has_settings_for = loss::exact_outputs<Loss> == 0 || Output::size == loss::exact_outputs<Loss>;
template <class Metric, class Output, class Label, class T>
inline constexpr bool is_metric_for = false;
template <class Metric, class Output, class Label, class T>
    requires metrics::Metric<Metric, T, Output>
inline constexpr bool is_metric_for<Metric, Output, Label, T> =
    std::is_same_v<typename Metric::template label<Output>, Label>;
template <class Layer, class T>
inline constexpr bool is_complete = layer_api::Layer<Layer, T>;
/// Its running statistics take what was observed.
template <class Layer, class T>
inline constexpr bool absorbs = !layer_api::has_statistics<Layer> || layer_api::Absorbs<Layer, T>;
template <class Dataset, class T>
inline constexpr bool is_dataset = data::Dataset<Dataset, T>;
template <class Sample, class Input>
inline constexpr bool fits_network = std::is_same_v<Sample, Input>;
template <class Ranks>
inline constexpr bool is_communicator = std::is_constructible_v<comm::group, const Ranks&>;
template <class Until>
inline constexpr bool counts_epochs = std::is_same_v<Until, epochs> || std::is_same_v<Until, until_epoch>;
template <class Until>
inline constexpr bool is_epochs_or_steps = counts_epochs<Until> || std::is_same_v<Until, steps> ||
                                           std::is_same_v<Until, until_step> || std::is_same_v<Until, seconds>;
template <class Found, class Wanted>
inline constexpr bool fits_loss = std::is_same_v<Found, Wanted>;

}  // namespace lockstep::train
