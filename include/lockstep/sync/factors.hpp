// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// plan::factors: dense layers whose rows of x and dy travel in place of their gradients, and the choice of them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/factor_sum.hpp"
#include "lockstep/reduce/sum_rule.hpp"
#include "lockstep/reduce/transport.hpp"
#include "lockstep/sync/buckets.hpp"

namespace lockstep::sync {

/// Whether factors of a layer are cheaper than the sum of its gradient: fewer numbers of a batch, B (m + q) < m q (the
/// broadcast of Xie et al. 2015, but to owners of strips), and a shorter time by the costs that were measured. `of`:
/// the bucket of the layer, with its factors and the algorithm of its sum.
[[nodiscard, gnu::cold]] bool prefers_factors(const reduce::bucket& of, std::size_t batch, std::size_t element_bytes,
                                              const collectives::cost_model& costs);

/// plan::factors. The gradient of a dense layer (m x q) over B samples is x^T dy: ranks send B (m + q) numbers in place
/// of m q, and each owner forms its strip of the gradient over all lanes, with the bits of the ordinary step. Each of
/// these layers is a bucket of its own.
/// Without `always` those layers send factors for which they are cheaper; none on one rank and through shared memory,
/// where gradients do not travel. With it all do, over messages, also on one node. Ranks send their room for rows,
/// batch x lanes of the rank / lanes, rounded up, also in a shorter minibatch.
/// Source: sufficient factor broadcasting (Xie et al. 2015; Poseidon, Zhang et al., ATC 2017); Project Adam (Chilimbi
/// et al., OSDI 2014).
struct factors {
    bool always = false;

    static constexpr std::string_view name = "factors";
    static constexpr bool are_used = true;

    [[nodiscard]] std::string settings() const { return always ? "always" : "automatic"; }
    /// Throws core::error for what does not go with factors in a plan.
    void check(reduce::transport transport, std::string_view all_reduce) const;

    template <class T, class Compressor>
    using method = reduce::factor_method<T>;

    /// What a layer sends.
    template <class Network>
    [[nodiscard, gnu::cold]] static reduce::factor_layer layer_of(std::size_t layer, std::size_t rows,
                                                                  std::span<const std::size_t> lengths) noexcept {
        return {Network::facts[layer].inputs, Network::facts[layer].outputs, rows, lengths};
    }
    /// For each layer whether it sends factors: equal on all ranks. Collective.
    template <class Types, class Setup, class Groups>
    [[nodiscard, gnu::cold]] static std::array<bool, Types::network::size> choose(const Setup& from,
                                                                                  const Groups& groups) {
        using network = typename Types::network;
        constexpr std::size_t element_bytes = sizeof(typename Types::value_type);
        std::array<bool, network::size> out{};
        if (from.all.size() == 1 || from.memory != nullptr) return out;
        core::for_each_index<network::size>([&](auto layer) {
            constexpr layer_api::traits says = layer_api::traits_of<typename network::template layer<layer>>;
            if constexpr (says.has_factors) {
                static_assert(
                    says.needs_x && !says.sums_gradient && !says.has_addend,
                    "lockstep: a layer with has_factors needs_x, and neither sums_gradient nor has_addend: its "
                    "factors are x and dy");
                constexpr model::layer_facts fact = network::facts[layer];
                static_assert(
                    fact.parameters_here == (fact.inputs + 1) * fact.outputs,
                    "lockstep: a layer with has_factors has a weight of inputs x outputs and a bias of outputs");
                const bucket_range range{.first = network::offset(layer), .count = fact.parameters_here};
                reduce::bucket bucket = bucket_of(range, from.grid, groups, from.team, nullptr, nullptr);
                bucket.factors = layer_of<network>(layer, from.rows, from.lane_lengths);
                from.rule.choose(bucket, element_bytes, Types::optimizer::slot_count + 3.0);
                out[layer] = from.plan.factors.always ||
                             prefers_factors(bucket, from.plan.batch, element_bytes, from.rule.costs());
            }
        });
        return out;
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION bool prefers_factors(const reduce::bucket& of, std::size_t batch, std::size_t element_bytes,
                                       const collectives::cost_model& costs) {
    const reduce::factor_layer& layer = of.factors;
    const double width = static_cast<double>(layer.inputs + layer.outputs);
    if (static_cast<double>(batch) * width >= static_cast<double>(layer.inputs) * static_cast<double>(layer.outputs))
        return false;
    // The busiest of a few ranks, spread over all of them: all ranks look at the same ones.
    const std::size_t ranks = of.runs.size(), looks = std::min<std::size_t>(ranks, 8);
    const auto rows = collectives::equal_strips(ranks, layer.numbers());
    const auto strips = collectives::tree_strips(of.runs, of.n);
    double by_sum = 0, by_factors = 0;
    for (std::size_t look = 0; look < looks; ++look) {
        const std::size_t rank = look * ranks / looks;
        const auto price = [&](const collectives::schedule& one) {
            return collectives::price(one, rank, element_bytes, costs);
        };
        const auto halves = of.sums.make(of.algorithm, rank, of.runs, of.n, of.on);
        by_sum = std::max(by_sum, price(halves.sum) + price(halves.share));
        by_factors = std::max(
            by_factors, price(collectives::all_gather(rank, rows)) + price(collectives::all_gather(rank, strips)));
    }
    return by_factors < by_sum;
}

LOCKSTEP_FUNCTION void factors::check(reduce::transport transport, std::string_view all_reduce) const {
    if (always && transport == reduce::transport::shared_memory)
        core::fail("the plan asks for shared memory, and for factors, which are messages", "leave one of them out");
    if (all_reduce.empty()) return;
    if (!collectives::algorithm_table::parse(all_reduce).invariant())
        core::fail(core::text("the plan asks for factors, which add along the lane tree, and for the all-reduce '",
                              all_reduce, "', whose bits depend on the number of ranks"),
                   "leave one of them out");
}

#endif

}  // namespace lockstep::sync
