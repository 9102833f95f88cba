// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A plan as two texts: the recipe, which decides every bit of a run, and the machine, which decides its speed. All
// ranks must have been given both alike, and compare them before the first step; runs with equal recipes have equal
// bits.
// Tested by tests/unit/train/checks.cpp.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/reduce/transport.hpp"
#include "lockstep/saving/names.hpp"

namespace lockstep::train {

/// Names and values.
using plan_text = std::vector<std::pair<std::string, std::string>>;

/// name(settings) of a component; a lambda or a user's own type may have neither.
template <class Part>
[[nodiscard, gnu::cold]] std::string describe(const Part& part) {
    std::string out = "custom";
    if constexpr (requires { std::string_view{part.name}; }) out = std::string{std::string_view{part.name}};
    if constexpr (requires { std::string{part.settings()}; }) {
        const std::string settings{part.settings()};
        if (!settings.empty()) out += core::text("(", settings, ")");
    }
    return out;
}

/// What decides the result. `workers`: those of the run, 0 where nothing is kept for each.
template <class Plan>
[[nodiscard, gnu::cold]] plan_text recipe_of(const Plan& of, std::size_t workers) {
    using net = decltype(of.model);
    std::string algorithms;
    core::for_each_index<net::size>([&](auto index) {
        const auto& spec = of.model.template node<index>();
        if constexpr (requires { std::string{spec.chosen.algorithms()}; }) algorithms += spec.chosen.algorithms();
    });
    // Settings need not say all, and a lambda has none: values at a few steps stand for it. One that throws there may
    // be for a shorter run.
    std::string rates;
    for (const std::uint64_t step : {0U, 1U, 10U, 100U, 1'000U, 10'000U}) {
        std::string rate = "none";
        try {
            rate = core::text(static_cast<double>(of.schedule(step)));
        } catch (const std::exception&) {
        }
        rates += core::text(rates.empty() ? "" : " ", rate);
    }
    plan_text out;
    const auto add = [&](const char* name, std::string value) { out.emplace_back(name, std::move(value)); };
    add("seed", core::text(of.seed));
    add("batch", core::text(of.batch));
    add("lanes", core::text(of.lanes));
    add("workers", workers == 0 ? "none" : core::text(workers));
    add("segment", workers == 0 ? "none" : core::text(of.segment));
    add("sums", core::text("those up to ", collectives::name_of(of.sums.last)));
    add("network", saving::text_of(of.model));
    add("choice of algorithms", algorithms.empty() ? "that of the rules" : core::hexadecimal(core::hash(algorithms)));
    add("loss", describe(of.loss));
    add("optimizer", describe(of.optimizer));
    add("schedule", describe(of.schedule));
    add("learning rates", rates);
    add("compressor", describe(of.compressor));
    add("sync", describe(of.sync));
    add("clip", describe(of.clip));
    // The bits of a pipeline are those of data parallelism.
    add("partition",
        core::text(of.partition.stages > 1 ? std::string_view{"data"} : std::string_view{of.partition.name}, " in ",
                   of.partition.shards, " shards"));
    add("sampler", describe(of.sampler));
    add("initialisation", describe(of.initialise));
    add("precision", core::text(8 * sizeof(typename decltype(of.precision)::type), " bits"));
    add("arithmetic", std::string{core::arithmetic_mode()});
    return out;
}

/// What decides the speed alone, but for an all-reduce of `sums` beyond the lane tree.
template <class Plan>
[[nodiscard, gnu::cold]] plan_text machine_of(const Plan& of) {
    plan_text out;
    out.push_back({"bucket", core::text(of.bucket)});
    out.push_back({"transport", std::string{reduce::name_of(of.transport)}});
    out.push_back({"all-reduce", of.all_reduce.empty() ? "by costs" : of.all_reduce});
    out.push_back({"factors", describe(of.factors)});
    if (of.partition.stages > 1) out.push_back({"stages", describe(of.partition)});
    if constexpr (compress::adds_streams<decltype(of.compressor)>)
        out.push_back({"sum of streams", std::string{name_of(stream_settings_of(of.compressor).algorithm)}});
    if constexpr (compress::adapts<decltype(of.compressor)>)
        out.push_back(
            {"decisions of the compressor", of.compressor.decision_settings() + (of.overlap ? " with overlap" : "")});
    if constexpr (requires { of.sync.machine_settings(); }) out.push_back({"sync", of.sync.machine_settings()});
    return out;
}

/// A line for each name and value.
[[nodiscard, gnu::cold]] std::string to_text(const plan_text& of);

/// Throws on all ranks alike where two of them differ, naming the first thing that does. Collective.
[[gnu::cold]] void agree(const comm::group& ranks, const plan_text& mine);
/// The same of what is no part of a plan, but passed to a call: each thing is named for itself. `set`: the name of the
/// data set among them.
[[gnu::cold]] void agree_on_call(const comm::group& ranks, const plan_text& mine, std::string_view set);

/// What text_of() calls a data set.
inline constexpr std::string_view data_set_entry = "data set";
/// Of a data set that has settings: every rank has to read its samples alike. Else nothing.
template <class Dataset>
[[nodiscard, gnu::cold]] plan_text text_of(const Dataset& set) {
    if constexpr (requires { std::string{set.settings()}; })
        return {{std::string{data_set_entry}, set.settings()}};
    else
        return {};
}
/// agree_on_call() with it alone. Collective.
template <class Dataset>
[[gnu::cold]] void agree_on(const comm::group& ranks, const Dataset& set) {
    if (const plan_text mine = text_of(set); !mine.empty()) agree_on_call(ranks, mine, data::name_of(set));
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string to_text(const plan_text& of) {
    std::string out;
    for (const auto& [name, value] : of) out += core::text(name, ": ", value, "\n");
    return out;
}

namespace detail {

/// The first rank that differs from rank 0, and the first name and values that do; without a name: none.
struct plan_difference {
    std::size_t rank = 0;
    std::string name, first, other;

    [[nodiscard]] std::string values() const { return core::text(first, " on rank 0 and ", other, " on rank ", rank); }
};
[[nodiscard]] LOCKSTEP_FUNCTION plan_difference first_difference(const comm::group& ranks, const plan_text& mine) {
    std::string joined;
    for (const auto& [name, value] : mine) joined += name + '\1' + value + '\2';
    const auto all = ranks.gather_all(std::string_view{joined});
    const auto fields = [](const std::string& of) {
        plan_text out;
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
                return {rank, first[i].first, first[i].second, i < other.size() ? other[i].second : "missing"};
    }
    return {};
}

}  // namespace detail

LOCKSTEP_FUNCTION void agree(const comm::group& ranks, const plan_text& mine) {
    const auto found = detail::first_difference(ranks, mine);
    if (!found.name.empty())
        core::fail(core::text("ranks were given different plans: ", found.name, " is ", found.values()),
                   "give every rank the same plan");
}

LOCKSTEP_FUNCTION void agree_on_call(const comm::group& ranks, const plan_text& mine, std::string_view set) {
    const auto found = detail::first_difference(ranks, mine);
    if (found.name == data_set_entry)
        core::fail(core::text("ranks were given different data sets: ", set, " has the settings ", found.values()),
                   "give every rank the same data set, with the same settings and files");
    if (!found.name.empty())
        core::fail(core::text("ranks were given different ", found.name, ": ", found.values()),
                   core::text("give every rank the same ", found.name));
}

#endif

}  // namespace lockstep::train
