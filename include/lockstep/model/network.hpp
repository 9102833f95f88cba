// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The facts of a bound network, all known to the compiler: shapes, parameters and where they lie, operations.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/model/binding.hpp"
#include "lockstep/model/fusion.hpp"

namespace lockstep::model {

/// One layer as numbers, for plans, summaries and loops at run time.
struct layer_facts {
    std::string_view name;
    std::size_t inputs = 0;             ///< features of a sample before it, uncut
    std::size_t outputs = 0;            ///< and after it
    std::size_t parameters = 0;         ///< of the whole layer
    std::size_t parameters_here = 0;    ///< on one rank
    std::size_t offset = 0;             ///< of its parameters among those of its segment
    std::size_t statistics = 0;         ///< numbers that are averaged, not learned
    std::size_t statistics_offset = 0;  ///< of them among those of the network
    std::span<const tensor::parameter> tensors;   ///< its parameters on one rank, one after the other
    std::span<const tensor::parameter> observed;  ///< the tensors of its statistics
    double flops = 0;                   ///< forward, one sample, the whole layer
    double gradient_flops = 0;          ///< of one of its gradients
    model::segment segment = segment::replicated;
    redistribution redistribution_before = redistribution::none;
    redistribution redistribution_after = redistribution::none;
    bool is_view = false;
    bool input_learns = false;  ///< what it reads depends on parameters: only then its gradient is asked for
    bool learns = false;        ///< what it gives depends on parameters
    bool runs_again = false;    ///< forward, in backward: it stands in a recompute, and something there needs its value
};

/// A network on one of `Shards` ranks of a model group.
template <class Net, std::size_t Shards>
struct network {
    static constexpr std::size_t size = Net::size;
    static constexpr std::size_t shards = Shards;
    /// Binds the layers in their order: the last one first would nest as deeply as the network.
    static constexpr bool in_order = []<std::size_t... Index>(std::index_sequence<Index...>) {
        return (bound<Net, Shards, Index>::fits && ...);
    }
    (std::make_index_sequence<size>{});
    using input = typename Net::input;
    template <std::size_t Index>
    using at = fused<Net, Shards, Index>;
    /// Which node reads which value when the network runs.
    static constexpr const auto& graph = fusion<Net, Shards>::graph;
    template <std::size_t Index>
    using layer = typename at<Index>::type;
    using output = typename at<size - 1>::whole::output;
    /// After the last layer the group goes back to own samples, for the loss.
    static constexpr redistribution redistribution_after = at<size - 1>::redistribution_after;

    static constexpr std::array<layer_facts, size> facts = [] {
        std::array<layer_facts, size> out{};
        std::array<std::size_t, 2> used{};
        std::size_t observed = 0;
        core::for_each_index<size>([&](auto index) {
            using here = at<index>;
            auto& fact = out[index];
            fact.name = here::type::name;
            fact.inputs = here::whole::input::size;
            fact.outputs = here::whole::output::size;
            fact.parameters = tensor::total_size(here::whole::parameters);
            fact.parameters_here = tensor::total_size(here::type::parameters);
            fact.flops = static_cast<double>(here::whole::flops);
            fact.gradient_flops = fact.flops * layer_api::traits_of<typename here::whole>.gradient_share;
            fact.segment = here::is_sharded ? segment::sharded : segment::replicated;
            fact.redistribution_before = here::redistribution_before;
            fact.redistribution_after = here::redistribution_after;
            fact.is_view = layer_api::traits_of<typename here::type>.is_view;
            for (const std::size_t value : Net::graph.of(index))
                fact.input_learns = fact.input_learns || (value != the_samples && out[value].learns);
            fact.learns = fact.input_learns || fact.parameters > 0;
            auto& end = used[static_cast<std::size_t>(fact.segment)];
            fact.offset = end;
            end += fact.parameters_here;
            fact.statistics = tensor::total_size(layer_api::statistics_of<typename here::type>);
            fact.statistics_offset = observed;
            fact.tensors = here::type::parameters;
            fact.observed = layer_api::statistics_of<typename here::type>;
            observed += fact.statistics;
        });
        // From the end on: the readers of a value decide whether it is needed.
        core::for_each_index_reversed<size>([&](auto index) {
            using type = layer<index>;
            constexpr auto traits = layer_api::traits_of<type>;
            auto& fact = out[index];
            if (graph.block[index] == 0) return;
            fact.runs_again = fact.runs_again || (fact.learns && !fact.is_view &&
                                                  (traits.needs_y || layer_api::saved_bytes<type, float> > 0));
            if (!fact.runs_again && !(fact.learns && !fact.is_view && traits.needs_x)) return;
            // Backward needs no addend.
            const std::size_t needed = fact.runs_again || !traits.has_addend ? graph.inputs(index) : 1;
            for (const std::size_t value : graph.of(index).first(needed))
                if (value != the_samples && graph.block[value] == graph.block[index]) out[value].runs_again = true;
        });
        for (std::size_t index = 1; index < size; ++index)
            if (fusion<Net, Shards>::is_computed_before(index)) out[index].runs_again = out[index - 1].runs_again;
        return out;
    }();

    /// Parameters of a segment on one rank.
    [[nodiscard]] static constexpr std::size_t segment_size(segment which) noexcept {
        std::size_t sum = 0;
        for (const auto& fact : facts) sum += fact.segment == which ? fact.parameters_here : 0;
        return sum;
    }
    /// Parameters on one rank: the replicated segment, then the sharded one.
    static constexpr std::size_t parameters_here = segment_size(segment::replicated) + segment_size(segment::sharded);
    /// Where a layer's parameters begin among them.
    [[nodiscard]] static constexpr std::size_t offset(std::size_t layer) noexcept {
        return facts[layer].offset + (facts[layer].segment == segment::sharded ? segment_size(segment::replicated) : 0);
    }
    /// Parameters of the whole network.
    static constexpr std::size_t parameters = [] {
        std::size_t sum = 0;
        for (const auto& fact : facts) sum += fact.parameters;
        return sum;
    }();
    /// Statistics of all layers, on every rank.
    static constexpr std::size_t statistics = facts[size - 1].statistics_offset + facts[size - 1].statistics;
    /// Operations of one sample, forward; training adds those of both gradients (mostly as many each), less the data
    /// gradient of layers before which nothing learns, and once more those that run again.
    static constexpr double forward_flops = [] {
        double sum = 0;
        for (const auto& fact : facts) sum += fact.flops;
        return sum;
    }();
    static constexpr double training_flops = [] {
        double sum = 0;
        for (std::size_t index = 0; index < size; ++index)
            sum += facts[index].flops * static_cast<double>(1 + facts[index].runs_again) +
                   facts[index].gradient_flops * (!facts[index].learns                                       ? 0
                                                  : facts[index].parameters > 0 && facts[index].input_learns ? 2
                                                                                                             : 1);
        return sum;
    }();
    /// The first layer with parameters.
    static constexpr std::size_t first_learning_layer = [] {
        std::size_t index = 0;
        while (index < size && facts[index].parameters == 0) ++index;
        return index;
    }();
};

/// The largest number of shards that divides every layer that can be cut, and how each of them divides: for messages
/// before binding.
template <class Net>
struct shardable {
    /// The first layer that `shards` does not divide, or Net::size.
    [[nodiscard]] static constexpr std::size_t first_undivided(std::size_t shards) noexcept {
        std::size_t out = Net::size;
        core::for_each_index_reversed<Net::size>([&](auto index) {
            using whole = typename bound<Net, 1, index>::whole;
            if (layer_api::is_shardable<whole> && whole::output::size % shards != 0) out = index;
        });
        return out;
    }
    [[nodiscard]] static constexpr std::size_t count() noexcept {
        std::size_t out = 0;
        core::for_each_index<Net::size>(
            [&](auto index) { out += layer_api::is_shardable<typename bound<Net, 1, index>::whole>; });
        return out;
    }
};

}  // namespace lockstep::model
