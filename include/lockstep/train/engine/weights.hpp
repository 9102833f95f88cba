// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The weights of a trainer: how they start, one of them by name, and all of them of a network that is cut over ranks,
// out and in.
// Tested by tests/equivalence/saved_weights.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/model/initialise.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/partition/redistribution.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/saving/names.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::train {

/// Layers before number `count`, counted from 0 as in the summary; left out: all.
struct layers_before {
    std::size_t count = core::largest_size;  ///< the first one that is not meant
};

/// Throws core::error where an optimizer that leaves tensors as they are leaves all of them.
template <class Network, class Optimizer>
[[gnu::cold]] void require_trained_tensors(const Optimizer& optimizer) {
    if constexpr (optim::has_frozen_tensors<Optimizer>) {
        for (std::size_t layer = 0; layer < Network::size; ++layer)
            for (std::size_t i = 0; i < Network::facts[layer].tensors.size(); ++i) {
                const tensor::parameter& one = Network::facts[layer].tensors[i];
                if (optimizer.trains({.layer = layer, .number = i, .rows = one.rows, .columns = one.columns})) return;
            }
        core::fail(core::text(Optimizer::name, "(", std::string{optimizer.settings()}, ") trains no weight of the ",
                              Network::size, " layers of the network"),
                   "freeze fewer layers: they count from 0, as in the summary");
    }
}

/// Every weight of these layers as the rule says for its place in the uncut network.
template <class Network, class T, class Rule>
[[gnu::cold]] void initialise_weights(std::span<T> weights, const partition::grid& on, std::uint64_t seed,
                                      const Rule& rule, parallel::block layers) {
    for (std::size_t layer = layers.first; layer < layers.last; ++layer) {
        const bool is_sharded = Network::facts[layer].segment == model::segment::sharded;
        std::size_t at = Network::offset(layer), number = 0;
        for (const auto& one : Network::facts[layer].tensors) {
            model::initialise(one, weights.subspan(at, one.size()), is_sharded ? on.shard() * one.columns : 0,
                              is_sharded ? Network::shards * one.columns : one.columns, seed, layer, number++, rule);
            at += one.size();
        }
    }
}

/// Rows x columns numbers of a layer.
template <class T>
struct named_numbers {
    std::span<T> numbers;
    std::array<std::size_t, 2> extents{};
};

/// A parameter or a statistic of a layer. Throws core::error if there is none of that name.
template <class Network, class T>
[[nodiscard, gnu::cold]] named_numbers<T> find_numbers(std::size_t layer, std::string_view name, std::span<T> weights,
                                                       std::span<T> statistics) {
    named_numbers<T> found;
    std::string known;
    const auto look = [&](std::span<const tensor::parameter> all, std::span<T> in, std::size_t at) {
        for (const auto& one : all) {
            known += core::text(known.empty() ? "" : ", ", one.name);
            if (one.name == name) found = {in.subspan(at, one.size()), {one.rows, one.columns}};
            at += one.size();
        }
    };
    if (layer < Network::size) {
        const model::layer_facts& fact = Network::facts[layer];
        look(fact.tensors, weights, Network::offset(layer));
        look(fact.observed, statistics, fact.statistics_offset);
    }
    if (found.numbers.empty())
        core::fail(core::text("layer ", layer, " has no parameter '", name, "'"),
                   known.empty() ? core::text("choose a layer with parameters below ", Network::size)
                                 : "choose one of: " + known);
    return found;
}

/// Shows a visitor the weights and running statistics of this rank (tensor/state.hpp). `layers`: those that it trains.
template <class Network, class T, class Visitor>
void visit_weights(Visitor&& visit, std::span<T> weights, std::span<T> statistics, const partition::grid& on,
                   parallel::block layers) {
    std::size_t tensor = 0;
    for (std::size_t layer = 0; layer < layers.last; ++layer) {
        const model::layer_facts& fact = Network::facts[layer];
        if (layer < layers.first) {
            tensor += fact.tensors.size();
            continue;
        }
        const bool is_sharded = fact.segment == model::segment::sharded;
        std::size_t at = Network::offset(layer);
        for (const auto& one : fact.tensors) {
            visit(tensor::state_part<T>{.role = "weights",
                                        .tensor = tensor++ * on.shards + (is_sharded ? on.shard() : 0),
                                        .numbers = weights.subspan(at, one.size()),
                                        .speaks = (is_sharded ? on.replica() : on.of_stage().rank) == 0});
            at += one.size();
        }
        if (fact.statistics > 0)
            visit(tensor::state_part<T>{.role = "statistics",
                                        .tensor = layer,
                                        .numbers = statistics.subspan(fact.statistics_offset, fact.statistics),
                                        .speaks = on.of_stage().rank == 0});
    }
}

/// Numbers of all layers, of which each stage of a pipeline has those of its own, become whole on every rank of it.
/// `offset(layer)`: where those of a layer begin; of the number of layers: where they end. Collective in the pipeline.
template <class T, class Offset>
[[gnu::cold]] void join_stages(std::span<T> all, const std::vector<parallel::block>& layers, const comm::group& group,
                               const Offset& offset) {
    std::vector<parallel::block> strips;
    for (const auto& stage : layers) strips.push_back({offset(stage.first), offset(stage.last)});
    comm::run(group, collectives::all_gather(group.rank(), strips), all);
}
/// Of the weights of a network without shards, and of its statistics.
template <class Network>
[[nodiscard]] constexpr std::size_t weights_before(std::size_t layer) noexcept {
    return layer == Network::size ? Network::parameters_here : Network::offset(layer);
}
template <class Network>
[[nodiscard]] constexpr std::size_t statistics_before(std::size_t layer) noexcept {
    return layer == Network::size ? Network::statistics : Network::facts[layer].statistics_offset;
}

/// All weights of the whole network, layer by layer. Collective in a model group.
template <class Network, class T>
[[nodiscard, gnu::cold]] std::vector<T> gather_weights(std::span<const T> weights, const partition::grid& on,
                                                       const comm::group& group) {
    constexpr std::size_t shards = Network::shards;
    std::vector<T> out;
    core::with_memory("a copy of all weights", Network::parameters * sizeof(T),
                      "use a machine with more memory, or fewer ranks on this one",
                      [&] { out.reserve(Network::parameters); });
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        std::size_t at = Network::offset(layer);
        for (const auto& one : Network::facts[layer].tensors) {
            const auto part = weights.subspan(at, one.size());
            at += one.size();
            if (Network::facts[layer].segment == model::segment::sharded) {
                comm::buffer<T> cut(one.size() * shards);
                std::copy(part.begin(), part.end(), cut.begin() + static_cast<std::ptrdiff_t>(on.shard() * one.size()));
                std::vector<parallel::block> strips;
                for (std::size_t shard = 0; shard < shards; ++shard)
                    strips.push_back({shard * one.size(), (shard + 1) * one.size()});
                comm::run<T>(group, collectives::all_gather(on.shard(), strips), cut);
                const std::size_t begin = out.size();
                out.resize(begin + cut.size());
                partition::join_features(one.rows, shards, one.columns, cut.data(), out.data() + begin);
            } else {
                out.insert(out.end(), part.begin(), part.end());
            }
        }
    }
    return out;
}

/// Throws saving::agreed_error where these are not the weights and running statistics of such a network, finite and the
/// same on every rank. After it no rank uses its weights. Collective.
template <class Network, class T>
[[gnu::cold]] void require_loadable(const comm::group& ranks, std::span<const T> weights,
                                    std::span<const T> statistics) {
    saving::together(ranks, [&] {
        if (weights.size() != Network::parameters)
            core::fail(core::text("load_weights() was given ", weights.size(), " weights for a network of ",
                                  Network::parameters),
                       "pass what all_weights() of a trainer with the same network gave");
        if (statistics.size() != Network::statistics)
            core::fail(core::text("load_weights() was given ", statistics.size(),
                                  " running statistics for a network of ", Network::statistics),
                       Network::statistics == 0 ? "pass the weights alone"
                                                : "pass running_statistics() of the same trainer after the weights");
        for (const auto& some : {weights, statistics})
            if (const std::size_t bad = kernels::first_non_finite(some); bad != some.size())
                core::fail(core::text("load_weights() was given ", some[bad], " at position ", bad, " of the ",
                                      some.data() == weights.data() ? "weights" : "running statistics"),
                           "load numbers that are finite");
        saving::require_variances<Network>(statistics, "load_weights()");
    });
    const auto hashes =
        ranks.gather_all(std::array{core::hash(std::as_bytes(weights)), core::hash(std::as_bytes(statistics))});
    saving::together(ranks, [&] {
        for (std::size_t rank = 1; rank < hashes.size(); ++rank)
            if (hashes[rank] != hashes[0])
                core::fail(core::text("load_weights() was given other numbers on rank ", rank, " than on rank 0"),
                           "pass all weights of the whole network on every rank");
    });
}

/// Replicas begin with equal weights, and all ranks with equal statistics: a rule of initialisation may depend on what
/// differs between them. Collective.
template <class Network, class T>
[[gnu::cold]] void require_equal_weights(const comm::group& ranks, const partition::grid& on,
                                         std::span<const T> weights, std::span<const T> statistics,
                                         parallel::block layers) {
    std::uint64_t replicated = core::hash(std::as_bytes(statistics)), sharded = 0;
    for (std::size_t layer = layers.first; layer < layers.last; ++layer) {
        const model::layer_facts& fact = Network::facts[layer];
        const auto part = weights.subspan(Network::offset(layer), fact.parameters_here);
        std::uint64_t& hash = fact.segment == model::segment::sharded ? sharded : replicated;
        hash = core::hash(std::as_bytes(part), hash);
    }
    const auto hashes = ranks.gather_all(std::array{replicated, sharded});
    // The ranks of a stage have its layers, and their shards.
    for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
        const std::size_t of_stage = rank % on.stages, of_shard = rank % on.group_size();
        if (hashes[rank][0] != hashes[of_stage][0] || hashes[rank][1] != hashes[of_shard][1])
            core::fail(core::text("ranks ", hashes[rank][0] != hashes[of_stage][0] ? of_stage : of_shard, " and ", rank,
                                  " begin with different weights"),
                       "make the rule of initialisation a function of its arguments alone");
    }
}

/// This rank's part of all weights, of these layers: the inverse of gather_weights().
template <class Network, class T>
[[gnu::cold]] void cut_weights(std::span<const T> all, std::span<T> weights, const partition::grid& on,
                               parallel::block layers) {
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        const bool is_sharded = Network::facts[layer].segment == model::segment::sharded;
        std::size_t at = Network::offset(layer);
        for (const auto& one : Network::facts[layer].tensors) {
            const std::size_t width = is_sharded ? Network::shards * one.columns : one.columns;
            const std::size_t first = is_sharded ? on.shard() * one.columns : 0;
            for (std::size_t row = 0; row < one.rows && layer >= layers.first && layer < layers.last; ++row)
                std::copy_n(all.data() + row * width + first, one.columns, weights.data() + at + row * one.columns);
            at += one.size();
            all = all.subspan(one.rows * width);
        }
    }
}

}  // namespace lockstep::train

namespace lockstep {
using train::layers_before;
}  // namespace lockstep
