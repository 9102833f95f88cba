// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The plan as a table, printed before the run: grid, layers, operations, bytes and memory.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/train/recipe.hpp"

namespace lockstep::train {

/// One layer of the table.
struct layer_row {
    std::string_view name;       ///< of the layer
    std::string output;          ///< its shape, as text
    std::size_t parameters = 0;  ///< of the whole layer
    double flops = 0;            ///< forward, one sample
    bool sharded = false;        ///< cut by a model partition
    bool runs_again = false;     ///< forward, in backward
    std::string remark;          ///< what the layer wants to add: `remark()`
};

template <class Network, class Net>
[[nodiscard]] std::vector<layer_row> layer_rows(const Net& net) {
    std::vector<layer_row> out;
    core::for_each_index<Network::size>([&](auto index) {
        using here = typename Network::template at<index>;
        const auto& fact = Network::facts[index];
        std::string remark;
        if constexpr (layer_api::has_remark<typename here::type>) remark = here::make(net).remark();
        out.push_back({fact.name, tensor::to_text<typename here::whole::output>(), fact.parameters, fact.flops,
                       here::is_sharded, fact.runs_again, std::move(remark)});
    });
    return out;
}

/// Text in a column of `width` characters; numbers to the right.
[[nodiscard]] std::string left(std::string text, std::size_t width);
[[nodiscard]] std::string right(const std::string& text, std::size_t width);

/// What a trainer is about to do. Collective in a model partition.
template <class Trainer>
[[nodiscard, gnu::cold]] std::string summary(Trainer& of) {
    using network = typename Trainer::network;
    const auto& plan = of.recipe();
    const auto& grid = of.grid();
    const auto count = [](std::size_t number, std::string_view what) {
        return core::text(number, " ", what, number == 1 ? "" : "s");
    };
    std::string out = core::text("instructions  ", simd::instruction_set(), ", ",
                                 sizeof(typename Trainer::value_type) * 8, "-bit numbers");
    if (simd::width<float> < 8) out += "  (narrow: compile with -march=native or link lockstep::native)";
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
    out += "  (not optimised: configure with -DCMAKE_BUILD_TYPE=Release, or compile with -O3)";
#endif
    out += core::text("\ngrid          ", count(grid.ranks, "rank"), " = ", count(grid.replicas(), "replica"), " x ",
                      count(grid.shards, "shard"), " (", std::string_view{plan.partition.name}, "), ",
                      count(plan.threads, "thread"), " each\n");
    out +=
        core::text("minibatch     ", plan.batch, " samples in ", count(plan.lanes, "lane"), ", seed ", plan.seed, "\n");
    out += core::text("optimizer     ", describe(plan.optimizer), ", rate ", describe(plan.schedule), "\n");
    out += core::text("compressor    ", describe(plan.compressor), "\n");
    if (grid.workers > 0)
        out += core::text("workers       ", grid.workers,
                          plan.workers == 0 ? core::text(", one for each rank: .workers = ", grid.workers,
                                                         " keeps these bits on other numbers of ranks")
                                            : "",
                          sync::has_worker_weights<decltype(plan.sync)>
                              ? core::text(", each with weights of its own")
                              : core::text(", segments of ", core::grouped(plan.segment), " numbers"),
                          "\n");
    if constexpr (sync::clips<decltype(plan.clip)>)
        if (plan.clip.is_active()) out += core::text("clip          ", describe(plan.clip), "\n");
    if (const std::string_view sync{plan.sync.name}; sync != "every_step")
        out += core::text("sync          ", describe(plan.sync), "\n");
    if (!plan.algorithms.empty()) out += core::text("algorithms    ", plan.algorithms, "\n");
    if constexpr (decltype(plan.factors)::are_used) {
        std::size_t senders = 0;
        for (std::size_t layer = 0; layer < network::size; ++layer) senders += of.sends_factors(layer) ? 1 : 0;
        out += core::text("factors       ", plan.factors.settings(), ": ", count(senders, "layer"),
                          senders == 1 ? " sends" : " send", " x and dy of each sample in place of a gradient\n");
    }
    out += core::text("network       input ", tensor::to_text<typename network::input>(), "\n");
    std::size_t number = 0, longest = 9;  // most networks have the same columns
    const auto rows = layer_rows<network>(plan.model);
    for (const auto& row : rows) longest = std::max(longest, row.name.size());
    for (const auto& row : rows) {
        const bool sends_factors = of.sends_factors(number);
        out += core::text(
            "  ", right(core::text(number++), 3), "  ", left(std::string{row.name}, longest + 2), left(row.output, 12),
            right(row.parameters > 0 ? core::grouped(row.parameters) : "", 13),
            row.parameters > 0 ? " parameters" : "           ", right(core::fixed(row.flops / 1e6, 3), 11), " MFLOP",
            row.sharded ? core::text("  1/", grid.shards, " on each rank") : "", row.remark.empty() ? "" : "  ",
            row.remark, row.runs_again ? "  runs again in backward" : "", sends_factors ? "  sends factors" : "", "\n");
    }
    out += core::text("  in all ", right(core::grouped(network::parameters), longest + 25), " parameters",
                      right(core::fixed(network::forward_flops / 1e6, 3), 11), " MFLOP forward, ",
                      core::fixed(network::training_flops / 1e6, 3), " to train on a sample\n");
    out += core::text("transport     ", of.transport(), "\n");
    out += core::text("each step     rank 0 sends ", core::grouped(of.averaging_bytes()), " bytes to average in ",
                      count(of.buckets(), "bucket"), ", ", core::grouped(of.redistribution_bytes()),
                      " bytes between layers\n");
    if (const auto how = of.all_reduce_algorithm(); !how.empty()) out += core::text("              by ", how, "\n");
    const auto memory = of.memory();
    const auto megabytes = [](std::size_t bytes) { return core::fixed(static_cast<double>(bytes) / 1e6, 1); };
    out +=
        core::text("memory        ", megabytes(of.memory_bytes()), " MB on rank 0: weights ", megabytes(memory.weights),
                   ", gradients ", megabytes(memory.gradients), ", optimizer ", megabytes(memory.optimizer),
                   ", activations ", megabytes(memory.activations), " (scratch up to ", megabytes(memory.scratch),
                   "), data ", megabytes(memory.data), ", messages ", megabytes(memory.messages), "\n");
    return out;
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string left(std::string text, std::size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text;
}

LOCKSTEP_FUNCTION std::string right(const std::string& text, std::size_t width) {
    return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

#endif

}  // namespace lockstep::train

namespace lockstep {
using train::summary;
}  // namespace lockstep
