// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the compiler checks of a plan, one sentence for each mistake. A part that fails is replaced, so that its message
// stays the only one.

#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/comm/group.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/metrics/concept.hpp"
#include "lockstep/metrics/list.hpp"
#include "lockstep/model/initialise.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/partition/concept.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/container.hpp"
#include "lockstep/tensor/shape.hpp"
#include "lockstep/train/fits.hpp"
#include "lockstep/train/plan.hpp"

namespace lockstep::train {

/// Stands in for a loss that does not fit; a trainer with it stays silent about labels and samples.
struct no_loss {
    static constexpr std::string_view name = "none";
    [[nodiscard]] std::string settings() const { return {}; }
    template <class Output>
    using label = Output;
    template <class T, class Output>
    double operator()(tensor::batch<const T, Output>, std::span<const T>, tensor::batch<T, Output>, T) const noexcept {
        return 0;
    }
};

template <bool Sound, class Part, class Substitute>
[[nodiscard]] constexpr auto or_else(const Part& part, const Substitute& substitute) {
    if constexpr (Sound)
        return part;
    else
        return substitute;
}

/// The loss of a plan, or what stands in for it where it does not fit the output of the network.
template <class Output, class T, class Loss>
[[nodiscard]] constexpr auto sound_loss(const Loss& loss) {
    static_assert(is_named<Loss>,
                  "lockstep: the plan has no loss: name one, as in .loss = ls::softmax_cross_entropy{}");
    if constexpr (!is_named<Loss>) {
        return no_loss{};
    } else {
        static_assert(is_loss_for<Loss, Output, T>,
                      "lockstep: a loss has label<Output>, name, settings() and a noexcept (y, target, dy, scale) that "
                      "returns the sum; it must "
                      "fit the output of the network");
        static_assert(
            has_outputs_for<Loss, Output>,
            "lockstep: the network has fewer outputs than its loss needs: with fewer it trains nothing, as with "
            "a softmax over one "
            "output, which is always 1; add outputs, or take mean_squared_error");
        static_assert(has_settings_for<Loss, Output>,
                      "lockstep: the loss has settings for another number of outputs than the network has: give "
                      "weighted_softmax_cross_entropy one weight for each class");
        constexpr bool fits =
            is_loss_for<Loss, Output, T> && has_outputs_for<Loss, Output> && has_settings_for<Loss, Output>;
        return or_else<fits>(loss, no_loss{});
    }
}

/// A bound layer, with a message where it is not complete.
template <class Layer, class T>
struct checked_layer {
    static_assert(absorbs<Layer, T>,
                  "lockstep: a layer with statistics has a const noexcept absorb(std::span<T> running, "
                  "std::span<const T> observed)");
    static_assert(is_complete<Layer, T> || !absorbs<Layer, T>,
                  "lockstep: a layer lacks a member of the concept Layer: input, output, parameters, name, flops, "
                  "forward(pass), backward(pass)");
    static_assert(layer_api::names_its_arrays<Layer>,
                  "lockstep: each parameter and statistic of a layer has a name, and no two of them the same: files "
                  "tell them apart by it");
    static constexpr bool sound =
        is_complete<Layer, T> && layer_api::names_its_arrays<Layer> && !layer_api::is_unbound<Layer>;
};

/// Whether all layers can be bound and are complete. Each layer is named where this is instantiated, so messages have a
/// short way to the user.
template <class Net, class T, class Indices = std::make_index_sequence<Net::size>>
inline constexpr bool sound_layers = false;
template <class Net, class T, std::size_t... Index>
inline constexpr bool sound_layers<Net, T, std::index_sequence<Index...>> =
    (Net::is_sound && ... && checked_layer<typename model::bound<Net, 1, Index>::whole, T>::sound);

/// Whether all layers of a sound network can be cut into so many shards.
template <class Net, std::size_t Shards, class Indices = std::make_index_sequence<Net::size>>
inline constexpr bool sound_shards = false;
template <class Net, std::size_t Shards, std::size_t... Index>
inline constexpr bool sound_shards<Net, Shards, std::index_sequence<Index...>> =
    (model::bound<Net, Shards, Index>::fits && ...);

/// Whether it is the length of a fit; with a message where not.
template <class Until>
[[nodiscard]] constexpr bool check_until() {
    constexpr bool is_array = tensor::is_container<Until>;
    static_assert(!is_array,
                  "lockstep: fit takes a data set and a length: make a set of arrays, const auto set = "
                  "ls::data::in_memory<Shape, Label>(x, y), or call step(x, y)");
    static_assert(is_array || is_epochs_or_steps<Until>,
                  "lockstep: fit runs for epochs{n}, steps{n} or seconds{s}, or to "
                  "until_epoch{n} or until_step{n}");
    return is_epochs_or_steps<Until>;
}

/// Whether a data set is one, and has what the network and the loss take; with a message where not.
template <class Dataset, class T, class Input, class Label, class Loss>
[[nodiscard]] constexpr bool check_dataset() {
    static_assert(!tensor::is_container<Dataset> || is_dataset<Dataset, T>,
                  "lockstep: a container is no data set: make one of samples and labels in memory, const auto set = "
                  "ls::data::in_memory<Shape, Label>(x, y), or call step(x, y)");
    static_assert(
        tensor::is_container<Dataset> || is_dataset<Dataset, T>,
        "lockstep: a data set has the types sample and label, size(), and read(rows, x, y), with x a "
        "batch<T, sample> of the plan's precision T and y a std::span<std::int32_t> for classes, a std::span<T> "
        "for a shape");
    if constexpr (is_dataset<Dataset, T> && !std::is_same_v<Loss, no_loss>) {
        using sample = typename Dataset::sample;
        using found = typename Dataset::label;
        static_assert(fits_network<sample, Input>,
                      "lockstep: the samples of the data set do not have the shape of the network's input");
        static_assert(fits_loss<found, Label>,
                      "lockstep: the labels of the data set are not what the loss takes for the network's output");
        static_assert(data::keeps_reading<Dataset, T>,
                      "lockstep: read(rows, x, y, reading) of a data set is const and takes a const data::reading&, "
                      "with x and y of the types that read(rows, x, y) takes");
        return fits_network<sample, Input> && fits_loss<found, Label>;
    }
    return false;
}

template <class Metric, class Output, class Label, class T>
[[nodiscard]] constexpr bool check_metric() {
    static_assert(is_metric_for<Metric, Output, Label, T>,
                  "lockstep: a metric has label<Output>, name and a noexcept (y, target) that returns a sum, or "
                  "sum_count<Output>, a noexcept add(pass) and result(sums, rows), or max_count<Output> as well, or "
                  "alone, and result(sums, maxima, rows); its labels are those of the loss");
    return is_metric_for<Metric, Output, Label, T>;
}
/// The same of all metrics of a list.
template <class List, class Output, class Label, class T>
inline constexpr bool check_metrics = false;
template <class... Metrics, class Output, class Label, class T>
inline constexpr bool check_metrics<metrics::list<Metrics...>, Output, Label, T> =
    (check_metric<Metrics, Output, Label, T>() && ...);

/// Factors of a plan, or none where they do not go with something else in it. `Sound`: the layers are.
template <bool Sound, class Net, class Partition, class Compressor, class Sync, class Optimizer, class Clip,
          class Factors>
[[nodiscard]] constexpr auto sound_factors(const Factors& factors) {
    static_assert(is_factors<Factors>, "lockstep: plan::factors is sync::no_factors{} or sync::factors{.always = ..}");
    if constexpr (!is_factors<Factors>) {
        return sync::no_factors{};
    } else {
        constexpr bool used = Factors::are_used;
        constexpr bool compressor_fits = factors_take_compressor<std::remove_const_t<Compressor>, used>;
        constexpr bool partition_fits = factors_take_partition<Partition, used>,
                       sync_fits = factors_take_sync<Sync, used>;
        constexpr bool norms_fit = factors_take_norms<std::remove_const_t<Optimizer>, std::remove_const_t<Clip>, used>;
        constexpr bool looks = Sound && used, network_fits = factors_take_network<Net, looks>;
        static_assert(compressor_fits,
                      "lockstep: factors are sent in place of gradients, and a compressor takes gradients; leave "
                      ".factors or .compressor out");
        static_assert(partition_fits,
                      "lockstep: factors are not defined for networks that a partition has cut; leave .factors or "
                      ".partition out");
        static_assert(
            sync_fits,
            "lockstep: this strategy does not say takes_factors = true, so its steps are not defined with factors; "
            "leave .factors out, or use sync::every_step");
        static_assert(norms_fit || !sync::has_norms<Sync>,
                      "lockstep: owners form gradients from factors as they update, and plan::clip and optimizers such "
                      "as lars need "
                      "norms before that; leave .factors out, or take another optimizer without .clip");
        static_assert(network_fits,
                      "lockstep: the network has no dense layer, and no other layer has factors; leave .factors out");
        constexpr bool all_fit = compressor_fits && partition_fits && sync_fits && norms_fit && network_fits;
        return or_else<all_fit>(factors, sync::no_factors{});
    }
}

/// The optimizer of a plan, or sgd where its proposals do not go with something else in it.
template <class T, class Compressor, class Sync, class Clip, class Optimizer>
[[nodiscard]] constexpr auto sound_proposals(const Optimizer& optimizer) {
    constexpr bool workers = proposes_to_workers<Optimizer, std::remove_const_t<Compressor>, T>;
    constexpr bool messages = sees_messages<Optimizer, std::remove_const_t<Compressor>, T>;
    constexpr bool plan_fits = has_plan_of_proposals<Optimizer, Sync, Clip, T>;
    static_assert(workers,
                  "lockstep: this optimizer proposes on each worker what travels, and without a compressor there are "
                  "no workers: name one, as in .compressor = error_feedback{top_k{}}, or take adam or momentum");
    static_assert(
        messages,
        "lockstep: this optimizer looks at the message of each worker, and a reduction in rounds has none, nor "
        "does global_top_k send all of it: take a compressor, as in error_feedback{top_k{}}, or another optimizer");
    static_assert(plan_fits,
                  "lockstep: this optimizer proposes in each step, after the update of the last one, and its sums are "
                  "no gradients: take sync::every_step{} and leave .clip out");
    return or_else < workers && messages && plan_fits > (optimizer, optim::sgd{});
}

/// The group that a trainer runs on.
template <class Ranks, class P>
[[nodiscard]] comm::group group_of(const Ranks& ranks, const P& plan, const std::source_location& where) {
    static_assert(is_communicator<Ranks>,
                  "lockstep: a trainer runs on an MPI_Comm, a boost::mpi::communicator or a comm::group; MPICH's "
                  "MPI_Comm is a number: pass boost::mpi::communicator{it, boost::mpi::comm_attach}");
    auto timeout = comm::default_timeout();
    if constexpr (std::is_same_v<Ranks, comm::group>)
        if (ranks.size() > 1) timeout = ranks.aborts().timeout();
    if constexpr (requires { timeout = *plan.timeout; })
        if (plan.timeout && comm::is_timeout(*plan.timeout)) timeout = *plan.timeout;
    if constexpr (is_communicator<Ranks>)
        return comm::make_group(ranks, where, timeout);
    else
        return comm::group{};
}

/// A plan of these parts, in the order of its members: clang 16 cannot find the types of `plan{..}`.
template <class Model, class Loss, class... Parts>
[[nodiscard]] constexpr auto plan_of(const Model& net, const Loss& loss, const Parts&... parts) {
    return plan<Model, Loss, Parts...>{net, loss, parts...};
}

/// The plan itself, or what is left of it where a part is wrong.
/// Each part has a static_assert on a variable template with a name, because g++ prints the arguments of one that
/// fails: so the user reads the shapes. tests/build_failures compares the first error and limits all of the output to
/// 15 lines.
template <class Plan>
[[nodiscard]] constexpr auto sound(const Plan& of) {
    static_assert(
        is_plan<Plan>,
        "lockstep: a trainer takes a communicator and a plan: trainer{world, ls::plan{.model = .., .loss = ..}}");
    if constexpr (is_plan<Plan>) {
        using T = typename sound_precision<decltype(of.precision)>::type;
        static_assert(is_precision<decltype(of.precision)>,
                      "lockstep: plan::precision is real<float>{} or real<double>{}");
        static_assert(keeps_checks<Plan>, "lockstep: the check() of a part of a plan is const");
        static_assert(
            is_initialisation<decltype(of.initialise)>,
            "lockstep: an initialisation has value(parameter, random, index[, layer]), which returns a number, as "
            "model::he{} and model::glorot{} have");
        static_assert(is_sequential<decltype(of.model)>,
                      "lockstep: the model of a plan is a sequential{input<..>, layers..}");
        static_assert(is_optimizer<decltype(of.optimizer), T>,
                      "lockstep: an optimizer has slot_count, name, settings() and a noexcept update(update_pass)");
        static_assert(optim::rules_are_quiet<std::remove_const_t<decltype(of.optimizer)>, T>,
                      "lockstep: rule(pass) and norm_rule(pass) of an optimizer are const and noexcept, as they are "
                      "called in the middle of an update");
        static_assert(
            optim::keeps_words<std::remove_const_t<decltype(of.optimizer)>, T>,
            "lockstep: propose(pass) and sent(pass) of an optimizer are const and noexcept, is_dense_step(step) "
            "is const and returns a bool, and it has worker_slot_count");
        static_assert(is_schedule<decltype(of.schedule)>,
                      "lockstep: a learning-rate schedule is called with a step and returns a number");
        static_assert(is_sampler<decltype(of.sampler)>,
                      "lockstep: a sampler has order(n, epoch, seed, out), which fills out with sample numbers");
        static_assert(is_partition<decltype(of.partition)>,
                      "lockstep: a partition is data{}, model<Shards>{}, pipeline<Stages>{} or a hybrid{data{}, ..} of "
                      "these");
        static_assert(cuts_once<decltype(of.partition)>,
                      "lockstep: a partition has shards or stages: a trainer has no pipeline of model groups; use "
                      "model<Shards>{} or pipeline<Stages>{}");
        static_assert(
            is_compressor<decltype(of.compressor), T>,
            "lockstep: a compressor has slot_count, name, settings(), max_bytes<T>(n), noexcept encode(in) and "
            "decode_add(message, scale, sum), or is a reduction with rounds: see lockstep/compress/reduction.hpp");
        static_assert(compress::keeps_seal<std::remove_const_t<decltype(of.compressor)>, T>,
                      "lockstep: seal(sealing) of a compressor is const and noexcept");
        static_assert(compress::keeps_members<std::remove_const_t<decltype(of.compressor)>, T>,
                      "lockstep: optional members of a compressor or a reduction, such as slots() and initialise(all), "
                      "are const");
    }
    if constexpr (has_sequential<Plan>) {
        using T = typename sound_precision<decltype(of.precision)>::type;
        constexpr bool layers = sound_layers<decltype(of.model), T>;
        auto net =
            or_else<layers>(of.model, model::sequential{typename decltype(of.model)::input{}, layers::flatten{}});
        const auto loss =
            sound_loss<typename model::network<decltype(net), 1>::output, T>(or_else<layers>(of.loss, no_loss{}));
        constexpr bool partitions = is_partition<decltype(of.partition)> && cuts_once<decltype(of.partition)>;
        const auto cut = or_else<partitions>(of.partition, partition::data{});
        constexpr bool staged = has_layers_for<decltype(net), decltype(cut)::stages>;
        static_assert(
            staged,
            "lockstep: the network cannot be cut into so many stages: a stage begins where one value alone is "
            "read from there on; use fewer stages");
        const auto part = or_else<staged>(cut, partition::data{});
        constexpr bool shards = sound_shards<decltype(net), decltype(part)::shards>;
        using compressor_type = std::remove_const_t<decltype(of.compressor)>;
        constexpr bool adapts = adaptive_takes_plan<compressor_type, std::remove_const_t<decltype(of.sync)>,
                                                    std::remove_const_t<decltype(part)>,
                                                    std::remove_const_t<decltype(of.optimizer)>,
                                                    std::remove_const_t<decltype(of.clip)>, T>;
        static_assert(adapts,
                      "lockstep: compress::adaptive is defined for sync::every_step and partition::data, without "
                      ".clip and without optimizers that need norms or propose: leave them out");
        const auto compressor =
            or_else < is_compressor<compressor_type, T> && adapts > (of.compressor, compress::none{});
        const auto optimizer =
            sound_proposals<T, decltype(compressor), decltype(of.sync), std::remove_const_t<decltype(of.clip)>>(
                or_else < is_optimizer<decltype(of.optimizer), T> && adapts > (of.optimizer, optim::sgd{}));
        constexpr bool clip_fits =
            norms_take_clip<std::remove_const_t<decltype(optimizer)>, std::remove_const_t<decltype(of.clip)>, T>;
        const auto clip = or_else < is_clip<decltype(of.clip)> && clip_fits > (of.clip, sync::no_clipping{});
        static_assert(
            is_clip<decltype(of.clip)>,
            "lockstep: plan::clip is left out, or has name, settings() and noexcept is_active() and factor(norm), as "
            "sync::clip_by_global_norm{.norm = 1} has");
        static_assert(
            clip_fits,
            "lockstep: the optimizer has norms of its own steps, as lamb has, and clipped gradients are known "
            "after them: leave .clip out, or take another optimizer");
        const auto factors = sound_factors<layers, decltype(net), decltype(part), decltype(compressor),
                                           decltype(of.sync), decltype(optimizer), decltype(clip)>(of.factors);
        using types =
            sync::run_types<T, model::network<decltype(net), shards ? decltype(part)::shards : 1>,
                            std::remove_const_t<decltype(optimizer)>, std::remove_const_t<decltype(compressor)>,
                            std::remove_const_t<decltype(clip)>, std::remove_const_t<decltype(factors)>>;
        constexpr bool syncs = is_sync<decltype(of.sync), types>;
        static_assert(syncs,
                      "lockstep: plan::sync has name, settings() and a class template strategy<Types> with the words "
                      "of a step: see "
                      "sync/concept.hpp");
        constexpr bool is_made = is_made_of_setup<std::remove_const_t<decltype(of.sync)>, types, Plan>;
        static_assert(is_made,
                      "lockstep: a strategy has a constructor template <class Plan> explicit strategy(const "
                      "sync::setup<Plan>&)");
        constexpr bool chooses = makes_choices<std::remove_const_t<decltype(of.sync)>, types>;
        static_assert(chooses,
                      "lockstep: takes_adaptive = true stands in a strategy whose class template derives from "
                      "sync::every_step::strategy<Types>, which chooses for compress::adaptive");
        constexpr bool promised = has_promised_words<std::remove_const_t<decltype(of.sync)>, types>;
        static_assert(promised,
                      "lockstep: a strategy with has_norms = true has measure_norms(weights), one with takes_factors = "
                      "true sends_factors(layer): derive it from sync::owner_updates<Types>, which has both");
        constexpr bool agrees = agrees_on_worker_weights<std::remove_const_t<decltype(of.sync)>, types>;
        static_assert(agrees,
                      "lockstep: has_worker_weights = true stands in the class template strategy<Types> as well as in "
                      "what the plan names as .sync, or in none of them");
        constexpr bool norms = has_norms_for<decltype(of.sync), std::remove_const_t<decltype(optimizer)>,
                                             std::remove_const_t<decltype(clip)>>;
        static_assert(norms,
                      "lockstep: this strategy measures no norms, which plan::clip and optimizers such as lars need "
                      "before the first "
                      "update of a step: take sync::every_step{}, or leave them out");
        constexpr bool whole = holds_whole_networks<decltype(of.sync), std::remove_const_t<decltype(part)>>;
        static_assert(
            whole,
            "lockstep: workers with weights of their own hold whole networks, and this partition cuts them: use "
            "partition::data{}, or sync::every_step{}");
        constexpr bool exact = sends_as_asked<decltype(of.sync), std::remove_const_t<decltype(compressor)>>;
        static_assert(exact,
                      "lockstep: workers of this strategy exchange weights as they are, which no compressor takes: use "
                      "compress::none{}, sync::local_sgd{}, sync::outer_momentum{}, sync::choco_sgd{} or "
                      "sync::every_step{}");
        constexpr bool moves = averages_all_tensors<decltype(of.sync), std::remove_const_t<decltype(optimizer)>>;
        static_assert(moves,
                      "lockstep: workers with weights of their own average all of them, and freeze keeps some bit for "
                      "bit: use sync::every_step{}, or leave freeze out");
        constexpr bool serves = server_takes_plan<decltype(of.sync), std::remove_const_t<decltype(part)>,
                                                  std::remove_const_t<decltype(compressor)>, decltype(net)>;
        static_assert(
            serves,
            "lockstep: learners of sync::parameter_server push gradients of whole networks as they are, and no "
            "running statistics: use partition::data{}, compress::none{} and layers without statistics, or "
            "sync::every_step{}");
        constexpr bool replays = server_takes_optimizer<decltype(of.sync), std::remove_const_t<decltype(optimizer)>>;
        static_assert(
            replays,
            "lockstep: a run of sync::parameter_server is replayed by sync::asynchronous, which takes no freeze: "
            "use sync::every_step{}, or leave freeze out");
        auto out =
            plan_of(net, loss, optimizer, or_else<is_schedule<decltype(of.schedule)>>(of.schedule, optim::constant{}),
                    or_else<shards>(part, partition::data{}), compressor,
                    or_else<is_initialisation<decltype(of.initialise)>>(of.initialise, model::he{}),
                    or_else<is_sampler<decltype(of.sampler)>>(of.sampler, data::shuffled{}),
                    or_else<is_precision<decltype(of.precision)>>(of.precision, real<float>{}),
                    or_else < syncs && is_made && promised && agrees && norms && whole && exact && moves && serves &&
                        replays > (of.sync, sync::every_step{}),
                    clip, factors);
        // A plan without a mistake stays what it is, whatever members it has; another one never runs.
        if constexpr (std::is_same_v<decltype(out), Plan>)
            return of;
        else
            return out;
    } else {
        // By a parameter: clang would need the type of this function here for what does not depend on one.
        return [](auto loss) {
            return sound(plan_of(model::sequential{tensor::shape<1>{}, layers::flatten{}}, loss));
        }(no_loss{});
    }
}

template <class Plan>
using sound_plan = decltype(sound(std::declval<const Plan&>()));

}  // namespace lockstep::train
