// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the compiler checks of a plan, one sentence for each mistake. A part that fails is replaced, so that its message stays the only one.

#include <cstddef>
#include <string_view>

#include "lockstep/compress/none.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/concept.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/partition/concept.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/train/plan.hpp"

namespace lockstep::train {

template <class T>
inline constexpr bool is_sequential = false;
template <class Input, class... Specs>
inline constexpr bool is_sequential<model::sequential<Input, Specs...>> = true;

template <class Optimizer, class T>
inline constexpr bool is_optimizer = optim::Optimizer<Optimizer, T>;
template <class Schedule>
inline constexpr bool is_schedule = optim::LrSchedule<Schedule>;
template <class Partition>
inline constexpr bool is_partition = partition::Partition<Partition>;
template <class Compressor, class T>
inline constexpr bool is_compressor = compress::Compressor<Compressor, T>;
template <class Loss, class Output, class T>
inline constexpr bool is_loss_for = loss::Loss<Loss, T, Output>;
template <class Layer, class T>
inline constexpr bool is_complete = layers::Layer<Layer, T>;
template <class Dataset, class T>
inline constexpr bool is_dataset = data::Dataset<Dataset, T>;
template <class Sample, class Input>
inline constexpr bool fits_network = std::is_same_v<Sample, Input>;
template <class Found, class Wanted>
inline constexpr bool fits_loss = std::is_same_v<Found, Wanted>;

/// Stands in for a loss that does not fit.
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

/// Whether every layer of the network is complete, with a message for the first that is not.
template <class Net, class T>
[[nodiscard]] consteval bool check_layers() {
    bool sound = true;
    core::for_each_index<Net::size>([&](auto index) {
        using layer = typename model::bound<Net, 1, index>::whole;
        static_assert(is_complete<layer, T>,
                      "lockstep: a layer lacks a member of the concept Layer: input, output, parameters, name, flops, forward(pass), backward(pass)");
        sound = sound && is_complete<layer, T>;
    });
    return sound;
}

/// The plan itself, or what is left of it where a part is wrong.
template <class Plan>
[[nodiscard]] constexpr auto sound(const Plan& of) {
    using T = typename decltype(of.precision)::type;
    constexpr bool optimizer = is_optimizer<decltype(of.optimizer), T>;
    constexpr bool schedule = is_schedule<decltype(of.schedule)>;
    constexpr bool partition = is_partition<decltype(of.partition)>;
    constexpr bool compressor = is_compressor<decltype(of.compressor), T>;
    static_assert(is_sequential<decltype(of.model)>, "lockstep: the model of a plan is a sequential{input<..>, layers..}");
    static_assert(optimizer, "lockstep: an optimizer has slot_count, name, settings() and a noexcept update(update_pass)");
    static_assert(schedule, "lockstep: a learning-rate schedule is called with a step and returns a number");
    static_assert(partition, "lockstep: a partition is data{}, model<Shards>{} or hybrid{data{}, model<Shards>{}}");
    static_assert(compressor, "lockstep: a compressor has kind, slot_count, name, settings(), max_bytes<T>(n), noexcept encode(in) and decode_add(message, scale, sum)");
    if constexpr (is_sequential<decltype(of.model)>) {
        constexpr bool layers = check_layers<decltype(of.model), T>();
        auto net = or_else<layers>(of.model, model::sequential{typename decltype(of.model)::input{}, layers::flatten{}});
        using output = typename model::network<decltype(net), 1>::output;
        constexpr bool loss = !layers || is_loss_for<decltype(of.loss), output, T>;
        static_assert(loss, "lockstep: a loss has label<Output>, name, settings() and a noexcept (y, target, dy, scale) that returns the sum; it must fit the output of the network");
        auto out = plan{
            .model = net,
            .loss = or_else<layers && loss>(of.loss, no_loss{}),
            .optimizer = or_else<optimizer>(of.optimizer, optim::sgd{}),
            .schedule = or_else<schedule>(of.schedule, optim::constant{}),
            .partition = or_else<partition>(of.partition, partition::data{}),
            .compressor = or_else<compressor>(of.compressor, compress::none{}),
            .initialise = of.initialise,
            .sampler = of.sampler,
            .precision = of.precision,
            .batch = of.batch,
            .lanes = of.lanes,
            .seed = of.seed,
            .threads = of.threads,
            .bucket = of.bucket,
        };
        return out;
    } else {
        return sound(plan{.model = model::sequential{tensor::shape<1>{}, layers::flatten{}}, .loss = no_loss{}, .precision = of.precision});
    }
}

template <class Plan>
using sound_plan = decltype(sound(std::declval<const Plan&>()));

}  // namespace lockstep::train
