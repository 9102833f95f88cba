// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Buckets: runs of layers whose gradients are averaged together, in the order in which backward finishes them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/reduce/sum_rule.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/train/commit.hpp"

namespace lockstep::train {

/// Parameters first .. first + count - 1 of this rank, all of one segment. Ready when backward has finished `lowest_layer`.
struct bucket_range {
    model::segment segment = model::segment::replicated;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t lowest_layer = 0;
    std::size_t highest_layer = 0;
};

/// The fewest parameters of a bucket: what the plan says; by measured costs where it says 0 and buckets do not decide what a compressor
/// does.
template <class T, class Plan>
[[nodiscard, gnu::cold]] std::size_t least_bucket(const Plan& of, const reduce::sum_rule& rule, const partition::grid& on) {
    if (of.bucket > 0) return of.bucket;
    if (!reduce::keeps_lane_order<T, decltype(of.compressor)>) return reduce::sum_rule::usual_bucket;
    std::vector<parallel::block> runs;
    for (std::size_t rank = 0; rank < on.ranks; ++rank) runs.push_back(on.lanes_of(rank));
    return rule.least_bucket(runs, sizeof(T));
}

/// For messages, with layers numbered as everywhere, from 0: `layers 3-5`.
[[nodiscard, gnu::cold]] std::string name_of(const bucket_range& range);

/// Neighbouring layers of one segment, from the last to the first, until a bucket has at least `least` parameters. Depends on the network
/// alone.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<bucket_range> make_buckets(std::size_t least) {
    std::vector<bucket_range> out;
    for (const auto segment : {model::segment::sharded, model::segment::replicated}) {
        bool open = false;
        for (std::size_t layer = Network::size; layer-- > 0;) {
            const auto& fact = Network::facts[layer];
            if (fact.segment != segment || fact.parameters_here == 0) continue;
            if (!open) out.push_back({segment, Network::offset(layer), 0, layer, layer});
            auto& last = out.back();
            last.first = Network::offset(layer);
            last.count += fact.parameters_here;
            last.lowest_layer = layer;
            open = last.count < least;
        }
    }
    return out;
}

/// The series of random words with which a rank compresses a bucket: another one for each bucket and message that is averaged. A message
/// of a replicated bucket is told from others by its first lane, one of a sharded bucket by its shard and the first lane of the model
/// group. Throws core::error where the product of shards, buckets and lanes exceeds core::random_stream::series_count.
[[nodiscard, gnu::cold]] std::uint32_t rounding_series(const bucket_range& range, std::size_t bucket, std::size_t buckets,
                                                       const partition::grid& on);

/// Who adds up a bucket: all ranks, or those with the same shard. `memory`: what all ranks share, if they do.
[[nodiscard, gnu::cold]] reduce::bucket bucket_of(const bucket_range& range, const partition::grid& on, const comm::group& all,
                                                  const comm::group& replicas, parallel::team team, comm::shared_parts* memory);

/// What gradients and weights of type T take where ranks share memory.
template <class T, class Network>
[[nodiscard, gnu::cold]] std::size_t shared_bytes(const partition::grid& on, std::size_t least) {
    std::size_t most = 1;
    for (std::size_t rank = 0; rank < on.ranks; ++rank) most = std::max(most, tensor::cover(on.lanes_of(rank), on.lanes).size());
    for (std::size_t of = 0; of < on.replicas(); ++of) most = std::max(most, tensor::cover(on.lanes_of_replica(of), on.lanes).size());
    constexpr std::string_view what = "bytes of shared gradients and weights";
    std::size_t bytes = tensor::arena::footprint(core::checked_product(what, Network::parameters_here, sizeof(T))) + commit::shared_bytes;
    for (const auto& range : make_buckets<Network>(least))
        bytes = core::checked_sum(what, bytes, tensor::arena::footprint(core::checked_product(what, most, range.count, sizeof(T))),
                                  sizeof(comm::shared_signal));
    return bytes;
}

/// A run of parameters that the optimizer treats alike.
struct update_run {
    std::size_t first = 0;
    std::size_t count = 0;
    bool decays = true;
};

/// Parameters first .. first + count - 1 of this rank as runs.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<update_run> make_runs(std::size_t first, std::size_t count) {
    std::vector<update_run> out;
    core::for_each_index<Network::size>([&](auto layer) {
        std::size_t at = Network::offset(layer);
        for (const auto& parameter : Network::template layer<layer>::parameters) {
            const std::size_t begin = std::max(at, first), end = std::min(at + parameter.size(), first + count);
            at += parameter.size();
            if (begin >= end) continue;
            if (!out.empty() && out.back().decays == parameter.decays && out.back().first + out.back().count == begin)
                out.back().count += end - begin;
            else
                out.push_back({begin, end - begin, parameter.decays});
        }
    });
    return out;
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string name_of(const bucket_range& range) {
    if (range.lowest_layer == range.highest_layer) return core::text("layer ", range.lowest_layer);
    return core::text("layers ", range.lowest_layer, "-", range.highest_layer);
}

LOCKSTEP_FUNCTION std::uint32_t rounding_series(const bucket_range& range, std::size_t bucket, std::size_t buckets,
                                                const partition::grid& on) {
    if (core::checked_product("series of random words", on.shards, buckets, on.lanes) > core::random_stream::series_count)
        core::fail(core::text(on.shards, " shards, ", buckets, " buckets and ", on.lanes, " lanes are more than the ",
                              core::random_stream::series_count, " series of random words that a compressor has"),
                   "use fewer lanes, or a larger bucket");
    const bool sharded = range.segment == model::segment::sharded;
    const std::size_t first = sharded ? on.group_lanes().first : on.own_lanes().first;
    return static_cast<std::uint32_t>(((sharded ? on.shard() : 0) * buckets + bucket) * on.lanes + first);
}

LOCKSTEP_FUNCTION reduce::bucket bucket_of(const bucket_range& range, const partition::grid& on, const comm::group& all,
                                           const comm::group& replicas, parallel::team team, comm::shared_parts* memory) {
    const bool sharded = range.segment == model::segment::sharded;
    reduce::bucket of{.ranks = (sharded ? replicas : all).named(name_of(range)),
                      .runs = {},
                      .lanes = on.lanes,
                      .n = range.count,
                      .team = team,
                      .memory = memory};
    for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
        of.runs.push_back(sharded ? on.lanes_of_replica(rank) : on.lanes_of(rank));
        of.parts.push_back(sharded ? rank * on.shards + on.shard() : rank);
    }
    return of;
}

#endif

}  // namespace lockstep::train
