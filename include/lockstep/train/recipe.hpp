// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The recipe as text: what every rank must have been given alike, compared over all ranks before the first step.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/reduce/transport.hpp"

namespace lockstep::train {

/// Name and value of each number that decides the result.
using recipe_text = std::vector<std::pair<std::string, std::string>>;

/// name(settings) of a component; a lambda or a user's own type may have neither.
template <class Part>
[[nodiscard, gnu::cold]] std::string describe(const Part& part) {
    std::string out = "custom";
    if constexpr (requires { std::string_view{Part::name}; }) out = std::string{std::string_view{Part::name}};
    if constexpr (requires { std::string{part.settings()}; }) {
        const std::string settings = part.settings();
        if (!settings.empty()) out += core::text("(", settings, ")");
    }
    return out;
}

template <class Plan>
[[nodiscard, gnu::cold]] recipe_text describe_plan(const Plan& of) {
    using net = decltype(of.model);
    using network = model::network<net, 1>;
    std::string layers = tensor::to_text<typename net::input>();
    std::string algorithms;
    core::for_each_index<net::size>([&](auto index) {
        const auto& spec = of.model.template node<index>();
        const auto& fact = network::facts[index];
        layers += core::text(" ", fact.name, "->", fact.outputs, "/", fact.parameters);
        if (net::graph.inputs(index) > 1 || net::graph.read(index) + 1 != index)
            for (const std::size_t value : net::graph.of(index)) layers += core::text("<", value + 1);
        if constexpr (requires { std::string{spec.chosen.algorithms()}; }) algorithms += spec.chosen.algorithms();
        if constexpr (requires { std::string{spec.settings()}; }) layers += core::text("(", std::string{spec.settings()}, ")");
    });
    // A lambda has no settings: its values at a few steps stand for it.
    std::string rates;
    for (const std::uint64_t step : {0, 1, 10, 100, 1'000, 10'000})
        rates += core::text(rates.empty() ? "" : " ", static_cast<double>(of.schedule(step)));
    recipe_text out;
    const auto add = [&](const char* name, std::string value) { out.emplace_back(name, std::move(value)); };
    add("seed", core::text(of.seed));
    add("batch", core::text(of.batch));
    add("lanes", core::text(of.lanes));
    add("workers", of.workers == 0 ? "one for each rank" : core::text(of.workers));
    add("segment", core::text(of.segment));
    add("bucket", core::text(of.bucket));
    add("transport", std::string{reduce::name_of(of.transport)});
    add("all-reduce", of.all_reduce.empty() ? "by costs" : of.all_reduce);
    add("sums", core::text("those up to ", collectives::name_of(of.sums.last)));
    add("network", std::move(layers));
    add("choice of algorithms", algorithms.empty() ? "that of the rules" : core::hexadecimal(core::hash(algorithms)));
    add("loss", describe(of.loss));
    add("optimizer", describe(of.optimizer));
    add("schedule", describe(of.schedule));
    add("learning rates", rates);
    add("compressor", describe(of.compressor));
    add("sync", describe(of.sync));
    add("clip", describe(of.clip));
    add("factors", describe(of.factors));
    add("partition", core::text(std::string_view{of.partition.name}, " in ", of.partition.shards, " shards"));
    add("sampler", describe(of.sampler));
    add("initialisation", describe(of.initialise));
    add("arithmetic", std::string{core::arithmetic_mode()});
    return out;
}

/// Throws on all ranks alike where two of them differ, naming the first thing that does. Collective.
[[gnu::cold]] void agree(const comm::group& ranks, const recipe_text& mine);

/// The same for a data set that has settings: every rank has to read its samples alike. Collective.
template <class Dataset>
[[gnu::cold]] void agree_on(const comm::group& ranks, const Dataset& set) {
    if constexpr (requires { std::string{set.settings()}; }) agree(ranks, {{"data set", set.settings()}});
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void agree(const comm::group& ranks, const recipe_text& mine) {
    std::string joined;
    for (const auto& [name, value] : mine) joined += name + '\1' + value + '\2';
    const auto all = ranks.gather_all(std::string_view{joined});
    const auto fields = [](const std::string& of) {
        recipe_text out;
        for (std::size_t at = 0; at < of.size();) {
            const std::size_t middle = of.find('\1', at), end = of.find('\2', at);
            out.emplace_back(of.substr(at, middle - at), of.substr(middle + 1, end - middle - 1));
            at = end + 1;
        }
        return out;
    };
    const auto first = fields(all[0]);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank] == all[0]) continue;
        const auto other = fields(all[rank]);
        for (std::size_t i = 0; i < first.size(); ++i)
            if (i >= other.size() || first[i] != other[i])
                core::fail(core::text("ranks were given different plans: ", first[i].first, " is ", first[i].second, " on rank 0 and ",
                                      i < other.size() ? other[i].second : "missing", " on rank ", rank),
                           "give every rank the same plan");
    }
}

#endif

}  // namespace lockstep::train
