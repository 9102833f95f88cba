// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Buckets: runs of layers whose gradients are averaged together, in the order in which backward finishes them.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/model/network.hpp"
#include "lockstep/tensor/parameter.hpp"

namespace lockstep::train {

/// Parameters first .. first + count - 1 of this rank, all of one segment. Ready when backward has finished `lowest_layer`.
struct bucket_range {
    model::segment segment = model::segment::replicated;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t lowest_layer = 0;
};

/// Neighbouring layers of one segment, from the last to the first, until a bucket has at least `least` parameters. Depends on the network alone.
template <class Network>
[[nodiscard, gnu::cold]] std::vector<bucket_range> make_buckets(std::size_t least) {
    std::vector<bucket_range> out;
    for (const auto segment : {model::segment::sharded, model::segment::replicated}) {
        bool open = false;
        for (std::size_t layer = Network::size; layer-- > 0;) {
            const auto& fact = Network::facts[layer];
            if (fact.segment != segment || fact.parameters_here == 0) continue;
            if (!open) out.push_back({segment, Network::offset(layer), 0, layer});
            auto& last = out.back();
            last.first = Network::offset(layer);
            last.count += fact.parameters_here;
            last.lowest_layer = layer;
            open = last.count < least;
        }
    }
    return out;
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

}  // namespace lockstep::train
