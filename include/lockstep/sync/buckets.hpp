// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Buckets: runs of layers whose gradients are averaged together, in the order in which backward finishes them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/reduce/sum_rule.hpp"
#include "lockstep/sync/commit.hpp"
#include "lockstep/tensor/parameter.hpp"

namespace lockstep::sync {

/// Parameters first .. first + count - 1 of this rank, all of one segment. Ready when backward has finished
/// `lowest_layer`.
struct bucket_range {
    model::segment segment = model::segment::replicated;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t lowest_layer = 0;
    std::size_t highest_layer = 0;
    bool by_factors = false;  ///< a single layer, whose rows of x and dy travel in place of its gradient
};

/// The fewest parameters of a bucket: what the plan says; by measured costs of links between hosts where it says 0 and
/// gradients are not compressed. Some algorithms that may be asked for, such as ring, take the order of additions from
/// the size of buckets: beside these it is always the same one.
template <class T, class Plan>
[[nodiscard, gnu::cold]] std::size_t least_bucket(const Plan& of, const reduce::sum_rule& rule,
                                                  const partition::grid& on) {
    if (of.bucket > 0) return of.bucket;
    if constexpr (reduce::method<T, decltype(of.compressor)>::has_workers) return collectives::usual_bucket;
    if (!of.all_reduce.empty()) return collectives::usual_bucket;
    std::vector<parallel::block> runs;
    for (std::size_t rank = 0; rank < on.ranks; ++rank) runs.push_back(on.lanes_of(rank));
    return rule.least_bucket(runs, sizeof(T));
}

/// For messages, with layers numbered as everywhere, from 0: `layers 3-5`.
[[nodiscard, gnu::cold]] std::string name_of(const bucket_range& range);

/// Neighbouring layers of one segment, from the last to the first, until a bucket has at least `least` parameters.
/// Depends on the network, on `by_factors` (a layer of these, no value or one for each layer, is a bucket of its own)
/// and on `layers` alone: those that are trained here.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<bucket_range> make_buckets(std::size_t least,
                                                                std::span<const bool> by_factors = {},
                                                                parallel::block layers = {0, Network::size}) {
    std::vector<bucket_range> out;
    for (const auto segment : {model::segment::sharded, model::segment::replicated}) {
        bool open = false;
        for (std::size_t layer = layers.last; layer-- > layers.first;) {
            const auto& fact = Network::facts[layer];
            if (fact.segment != segment || fact.parameters_here == 0) continue;
            const bool alone = !by_factors.empty() && by_factors[layer];
            if (!open || alone) out.push_back({segment, Network::offset(layer), 0, layer, layer, alone});
            auto& last = out.back();
            last.first = Network::offset(layer);
            last.count += fact.parameters_here;
            last.lowest_layer = layer;
            open = last.count < least && !alone;
        }
    }
    return out;
}

/// The same for a plan with this compressor. What chooses among compressors cuts buckets by its own settings, which are
/// the recipe's.
template <class Network, class Compressor>
[[nodiscard, gnu::cold]] std::vector<bucket_range> make_buckets([[maybe_unused]] const Compressor& of,
                                                                [[maybe_unused]] std::size_t least,
                                                                std::span<const bool> by_factors = {},
                                                                parallel::block layers = {0, Network::size}) {
    if constexpr (compress::adapts<Compressor>)
        return make_buckets<Network>(of.least_numbers, {}, layers);
    else
        return make_buckets<Network>(least, by_factors, layers);
}

/// What a compressor sees of a bucket: tensors of more than `segment` numbers in segments, counted from their start; 0:
/// all of them whole.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<reduce::piece> make_pieces(const bucket_range& range, const partition::grid& on,
                                                                std::size_t segment) {
    std::vector<reduce::piece> out;
    std::size_t tensor = 0;
    const bool sharded = range.segment == model::segment::sharded;
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        std::size_t at = Network::offset(layer);
        for (const auto& parameter : Network::facts[layer].tensors) {
            const std::size_t size = parameter.size(), each = segment == 0 ? size : segment;
            for (std::size_t first = 0; first < size && at >= range.first && at < range.first + range.count;
                 first += each)
                out.push_back({.first = at - range.first + first,
                               .count = std::min(each, size - first),
                               .tensor = tensor * on.shards + (sharded ? on.shard() : 0),
                               .offset = first,
                               .rows = parameter.rows,
                               .columns = parameter.columns,
                               .window = parameter.window});
            at += size;
            ++tensor;
        }
    }
    return out;
}

/// The ranks that share a worker with this one; this one alone where no ranks share any. Collective.
[[nodiscard, gnu::cold]] comm::group make_sharing_group(const partition::grid& on, const comm::group& all);

/// The groups of ranks that buckets are added over: all ranks, and those with the same shard; and of each, the ranks
/// that share a worker with this one.
struct bucket_groups {
    comm::group all;
    comm::group replicas;
    comm::group sharing;
    comm::group replicas_sharing{};
};
/// Collective.
[[nodiscard, gnu::cold]] bucket_groups make_bucket_groups(const partition::grid& on, const comm::group& all,
                                                          const comm::group& replicas, const comm::group& sharing);

/// Who adds up a bucket: all ranks, or those with the same shard. `memory`: what all ranks share, if they do; `inside`:
/// those of make_sharing_group().
[[nodiscard, gnu::cold]] reduce::bucket bucket_of(const bucket_range& range, const partition::grid& on,
                                                  const bucket_groups& groups, parallel::team team,
                                                  node::shared_parts* memory, node::shared_parts* inside);

/// Tensors of parameters in the whole network.
template <class Network>
[[nodiscard]] constexpr std::size_t tensor_count() {
    std::size_t out = 0;
    for (const model::layer_facts& fact : Network::facts) out += fact.tensors.size();
    return out;
}

/// Throws core::error where the random words of so many tensors cannot be told apart for each worker.
[[gnu::cold]] void require_series(std::size_t tensors, const partition::grid& on);

namespace detail {
/// Of the buckets with takes(range), in each of so many sets.
template <class T, class Network, class Compressor, class Takes>
[[nodiscard, gnu::cold]] std::size_t gradient_bytes(const Compressor& compressor, const partition::grid& on,
                                                    std::size_t least, std::size_t sets, const Takes& takes) {
    std::size_t most = 1;
    for (std::size_t rank = 0; rank < on.ranks; ++rank) most = std::max(most, on.nodes_of(on.lanes_of(rank)).size());
    for (std::size_t of = 0; of < on.replicas(); ++of)
        most = std::max(most, on.nodes_of(on.lanes_of_replica(of)).size());
    constexpr std::string_view what = "bytes of shared gradients";
    std::size_t bytes = 0;
    for (const auto& range : make_buckets<Network>(compressor, least))
        if (takes(range))
            bytes = core::checked_sum(what, bytes,
                                      core::checked_product(what, sets,
                                                            tensor::arena::footprint(core::checked_product(
                                                                what, most, range.count, sizeof(T))) +
                                                                sizeof(node::shared_signal)));
    return bytes;
}
}  // namespace detail

/// What weights of type T and so many sets of gradients take where all ranks share memory.
template <class T, class Network, class Compressor>
[[nodiscard, gnu::cold]] std::size_t shared_bytes(const Compressor& compressor, const partition::grid& on,
                                                  std::size_t least, std::size_t gradient_sets) {
    constexpr std::string_view what = "bytes of shared gradients and weights";
    return core::checked_sum(
        what, tensor::arena::footprint(core::checked_product(what, Network::parameters_here, sizeof(T))),
        core::checked_sum(what, std::size_t{commit::shared_bytes},
                          detail::gradient_bytes<T, Network>(compressor, on, least, gradient_sets,
                                                             [](const bucket_range&) { return true; })));
}
/// What sets of gradients take where the ranks that share a worker with this one share memory; 0 without such.
template <class T, class Network, class Compressor>
[[nodiscard, gnu::cold]] std::size_t inside_bytes(const Compressor& compressor, const partition::grid& on,
                                                  std::size_t least, std::size_t gradient_sets) {
    return detail::gradient_bytes<T, Network>(compressor, on, least, gradient_sets, [&](const bucket_range& range) {
        const bool sharded = range.segment == model::segment::sharded;
        return (sharded ? on.part_of_replica(on.replica()) : on.part_of(on.rank)).count > 1;
    });
}

/// A run of parameters that the optimizer treats alike.
struct update_run {
    std::size_t first = 0;
    std::size_t count = 0;
    bool decays = true;
    std::size_t tensor = 0;  ///< of the network, where runs are those of single tensors
    optim::tensor_place place{};  ///< the same
};

/// Parameters first .. first + count - 1 of this rank as runs. `each_tensor`: none of two tensors.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<update_run> make_runs(std::size_t first, std::size_t count,
                                                           bool each_tensor = false) {
    std::vector<update_run> out;
    std::size_t tensor = 0;
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        std::size_t at = Network::offset(layer), in_layer = 0;
        for (const auto& parameter : Network::facts[layer].tensors) {
            const std::size_t begin = std::max(at, first), end = std::min(at + parameter.size(), first + count);
            const optim::tensor_place place{layer, in_layer++, parameter.rows, parameter.columns, begin - at};
            at += parameter.size();
            const std::size_t number = tensor++;
            if (begin >= end) continue;
            if (!each_tensor && !out.empty() && out.back().decays == parameter.decays &&
                out.back().first + out.back().count == begin)
                out.back().count += end - begin;
            else
                out.push_back({begin, end - begin, parameter.decays, number, place});
        }
    }
    return out;
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string name_of(const bucket_range& range) {
    if (range.lowest_layer == range.highest_layer) return core::text("layer ", range.lowest_layer);
    return core::text("layers ", range.lowest_layer, "-", range.highest_layer);
}

LOCKSTEP_FUNCTION void require_series(std::size_t tensors, const partition::grid& on) {
    if (core::checked_product("series of random words", tensors, on.shards, on.workers) >
        core::random_stream::series_count)
        core::fail(
            core::text(tensors, " tensors, ", on.shards, " shards and ", on.workers, " workers are more than the ",
                       core::random_stream::series_count, " series of random words that a compressor has"),
            "use fewer workers");
}

LOCKSTEP_FUNCTION comm::group make_sharing_group(const partition::grid& on, const comm::group& all) {
    bool ranks_share = false;
    for (std::size_t rank = 0; rank < on.ranks; ++rank) ranks_share = ranks_share || on.part_of(rank).count > 1;
    return ranks_share ? all.split(on.part_of(on.rank).workers.first, on.rank) : comm::group{};
}

LOCKSTEP_FUNCTION bucket_groups make_bucket_groups(const partition::grid& on, const comm::group& all,
                                                   const comm::group& replicas, const comm::group& sharing) {
    bucket_groups out{.all = all, .replicas = replicas, .sharing = sharing};
    if (on.workers > 0 && on.shards > 1 && on.replicas() > on.workers)
        out.replicas_sharing =
            all.split(on.part_of_replica(on.replica()).workers.first * on.shards + on.shard(), on.rank);
    return out;
}

LOCKSTEP_FUNCTION reduce::bucket bucket_of(const bucket_range& range, const partition::grid& on,
                                           const bucket_groups& groups, parallel::team team, node::shared_parts* memory,
                                           node::shared_parts* inside) {
    const bool sharded = range.segment == model::segment::sharded;
    reduce::bucket of{.ranks = (sharded ? groups.replicas : groups.all).named(name_of(range)),
                      .runs = {},
                      .lanes = on.lanes,
                      .n = range.count,
                      .team = team,
                      .memory = memory};
    const auto part_of = [&](std::size_t rank) { return sharded ? on.part_of_replica(rank) : on.part_of(rank); };
    const std::size_t mine = sharded ? on.replica() : on.rank;
    if (on.workers > 0) {
        const partition::worker_part own = part_of(mine);
        of.deal.workers = on.workers;
        of.deal.lanes = on.worker_lanes();
        of.deal.own = own.workers;
        if (own.count > 1) {
            of.deal.sharing = (sharded ? groups.replicas_sharing : groups.sharing).named(name_of(range));
            of.deal.memory = inside;
        }
    }
    for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
        of.runs.push_back(sharded ? on.lanes_of_replica(rank) : on.lanes_of(rank));
        of.parts.push_back(sharded ? rank * on.shards + on.shard() : rank);
        if (on.workers == 0) continue;
        // The first of those that share a worker sends its messages.
        const partition::worker_part part = part_of(rank);
        of.deal.messages.push_back(part.index == 0 ? part.workers
                                                   : parallel::block{part.workers.last, part.workers.last});
        const std::size_t first = part.workers.first * on.worker_lanes();
        if (part.count > 1 && part.workers == of.deal.own) {
            of.deal.lanes_of.push_back({of.runs.back().first - first, of.runs.back().last - first});
            of.deal.parts.push_back(of.parts.back());
        }
    }
    // Those of one worker count from its first rank.
    for (std::size_t& part : of.deal.parts) part -= on.rank - on.part_of(on.rank).index;
    return of;
}

#endif

}  // namespace lockstep::sync
