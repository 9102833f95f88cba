// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The plan as a table, printed before the run: grid, layers, operations, bytes and memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/report/events.hpp"
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
    std::size_t stage = 0;       ///< of a pipeline
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
                       here::is_sharded, 0, fact.runs_again, std::move(remark)});
    });
    return out;
}

namespace detail {

/// What the table says: words and numbers, so that one function prints those of all trainers.
struct summary_facts {
    std::string instructions{};
    std::size_t element_bytes = 0;
    std::size_t vector_width = 0;  ///< floats
    bool is_optimised = true;
    partition::grid grid{};
    std::string_view partition{};
    std::size_t threads = 1, batch = 0, lanes = 0, micro_batches = 1;
    std::uint64_t seed = 0;
    std::string optimizer{}, schedule{}, compressor{};
    std::size_t workers_asked = 0;                        ///< 0: one for each rank, or pipeline
    std::string worker_state{};                           ///< what each of them has
    std::string clip{}, sync{}, algorithms{}, factors{};  ///< empty: none to name
    std::string input{};
    std::vector<layer_row> layers{};
    std::vector<bool> sends_factors{};  ///< each layer
    std::size_t parameters = 0;
    double forward_flops = 0, training_flops = 0;
    std::string transport{}, all_reduce{};
    std::size_t averaging_bytes = 0, buckets = 0, redistribution_bytes = 0, memory_bytes = 0;
    report::memory_by_kind memory{};
    std::uint64_t synchronous_steps = 0;  ///< before the first local one
    std::size_t synchronous_bytes = 0;    ///< to average in each of these
};
[[nodiscard]] std::string text_of(const summary_facts& of);
[[nodiscard]] std::string shared_workers(const partition::grid& of);

}  // namespace detail

/// What a trainer is about to do. Collective where a partition cuts the network.
template <class Trainer>
[[nodiscard, gnu::cold]] std::string summary(Trainer& of) {
    using network = typename Trainer::network;
    const auto& plan = of.recipe();
    detail::summary_facts out{.instructions = std::string{simd::instruction_set()},
                              .element_bytes = sizeof(typename Trainer::value_type),
                              .vector_width = simd::width<float>,
                              .grid = of.grid(),
                              .partition = plan.partition.name,
                              .threads = plan.threads,
                              .batch = plan.batch,
                              .lanes = plan.lanes,
                              .micro_batches = of.micro_batches(),
                              .seed = plan.seed,
                              .optimizer = describe(plan.optimizer),
                              .schedule = describe(plan.schedule),
                              .compressor = describe(plan.compressor),
                              .workers_asked = plan.workers,
                              .algorithms = plan.algorithms,
                              .input = tensor::to_text<typename network::input>(),
                              .layers = layer_rows<network>(plan.model),
                              .parameters = network::parameters,
                              .forward_flops = network::forward_flops,
                              .training_flops = network::training_flops,
                              .transport = of.transport(),
                              .all_reduce = of.all_reduce_algorithm(),
                              .averaging_bytes = of.averaging_bytes(),
                              .buckets = of.buckets(),
                              .redistribution_bytes = of.redistribution_bytes(),
                              .memory_bytes = of.memory_bytes(),
                              .memory = of.memory()};
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
    out.is_optimised = false;
#endif
    out.worker_state = sync::has_worker_weights<decltype(plan.sync)>
                           ? std::string{"each with weights of its own"}
                           : core::text("segments of ", core::grouped(plan.segment), " numbers");
    out.synchronous_steps = of.synchronous_steps();
    out.synchronous_bytes = of.averaging_bytes(0);
    if constexpr (sync::clips<decltype(plan.clip)>)
        if (plan.clip.is_active()) out.clip = describe(plan.clip);
    if (std::string_view{plan.sync.name} != "every_step") out.sync = describe(plan.sync);
    if constexpr (decltype(plan.factors)::are_used) out.factors = plan.factors.settings();
    for (std::size_t layer = 0; layer < network::size; ++layer) {
        out.sends_factors.push_back(of.sends_factors(layer));
        out.layers[layer].stage = of.stage_of(layer);
    }
    return detail::text_of(out);
}

#if LOCKSTEP_BODIES

/// Such as 0-1, 2-3, 4, 5 for four workers of six ranks; empty where no ranks share one. Of eight workers at most.
LOCKSTEP_FUNCTION std::string detail::shared_workers(const partition::grid& of) {
    std::string out;
    for (std::size_t rank = 0; of.workers > 0 && of.ranks > of.workers && rank < of.ranks;) {
        const auto worker = of.part_of(rank).workers.first;
        if (worker == 8) return out + ", ..";
        const std::size_t first = rank;
        while (rank < of.ranks && of.part_of(rank).workers.first == worker) ++rank;
        out += core::text(first > 0 ? ", " : "", first);
        if (rank - first > 1) out += core::text("-", rank - 1);
    }
    return out;
}

LOCKSTEP_FUNCTION std::string detail::text_of(const summary_facts& of) {
    const auto left = [](std::string text, std::size_t width) {
        text.resize(std::max(width, text.size()), ' ');
        return text;
    };
    const auto right = [](const std::string& text, std::size_t width) {
        return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
    };
    const auto count = [](std::size_t number, std::string_view what) {
        return core::text(number, " ", what, number == 1 ? "" : "s");
    };
    const auto megabytes = [](std::size_t bytes) { return core::fixed(static_cast<double>(bytes) / 1e6, 1); };
    const partition::grid& grid = of.grid;
    std::string out = core::text("instructions  ", of.instructions, ", ", of.element_bytes * 8, "-bit numbers");
    if (of.vector_width < 8) out += "  (narrow: compile with -march=native or link lockstep::native)";
    if (!of.is_optimised) out += "  (not optimised: configure with -DCMAKE_BUILD_TYPE=Release, or compile with -O3)";
    out += core::text("\ngrid          ", count(grid.ranks, "rank"), " = ", count(grid.replicas(), "replica"), " x ",
                      grid.stages > 1 ? count(grid.stages, "stage") : count(grid.shards, "shard"), " (", of.partition,
                      "), ", count(of.threads, "thread"), " each\n");
    out += core::text("minibatch     ", of.batch, " samples in ", count(of.lanes, "lane"),
                      grid.stages > 1 ? core::text(", ", of.micro_batches, " micro-batch",
                                                   of.micro_batches == 1 ? "" : "es", " in a pipeline")
                                      : "",
                      ", seed ", of.seed, "\n");
    out += core::text("optimizer     ", of.optimizer, ", rate ", of.schedule, "\n");
    out += core::text("compressor    ", of.compressor, "\n");
    if (grid.workers > 0)
        out += core::text("workers       ", grid.workers,
                          of.workers_asked == 0
                              ? core::text(", one for each ", grid.stages > 1 ? "pipeline" : "rank",
                                           ": .workers = ", grid.workers, " keeps these bits on other numbers of ranks")
                              : "",
                          ", ", of.worker_state, "\n");
    const auto line = [&](std::string_view name, const std::string& text) {
        if (!text.empty()) out += core::text(name, text, "\n");
    };
    line("              ranks of each: ", shared_workers(grid));
    line("clip          ", of.clip);
    line("sync          ", of.sync);
    line("algorithms    ", of.algorithms);
    if (!of.factors.empty()) {
        const auto senders = static_cast<std::size_t>(std::ranges::count(of.sends_factors, true));
        out += core::text("factors       ", of.factors, ": ", count(senders, "layer"),
                          senders == 1 ? " sends" : " send", " x and dy of each sample in place of a gradient\n");
    }
    out += core::text("network       input ", of.input, "\n");
    std::size_t longest = 9;  // most networks have the same columns
    for (const auto& row : of.layers) longest = std::max(longest, row.name.size());
    for (std::size_t number = 0; number < of.layers.size(); ++number) {
        const layer_row& row = of.layers[number];
        out += core::text(
            "  ", right(core::text(number), 3), "  ", left(std::string{row.name}, longest + 2), left(row.output, 12),
            right(row.parameters > 0 ? core::grouped(row.parameters) : "", 13),
            row.parameters > 0 ? " parameters" : "           ", right(core::fixed(row.flops / 1e6, 3), 11), " MFLOP",
            row.sharded ? core::text("  1/", grid.shards, " on each rank") : "",
            grid.stages > 1 ? core::text("  stage ", row.stage) : "", row.remark.empty() ? "" : "  ", row.remark,
            row.runs_again ? "  runs again in backward" : "", of.sends_factors[number] ? "  sends factors" : "", "\n");
    }
    out += core::text("  in all ", right(core::grouped(of.parameters), longest + 25), " parameters",
                      right(core::fixed(of.forward_flops / 1e6, 3), 11), " MFLOP forward, ",
                      core::fixed(of.training_flops / 1e6, 3), " to train on a sample\n");
    out += core::text("transport     ", of.transport, "\n");
    out += core::text("each step     rank ", of.grid.rank, " sends ", core::grouped(of.averaging_bytes),
                      " bytes to average in ", count(of.buckets, "bucket"), ", ",
                      core::grouped(of.redistribution_bytes), " bytes between layers\n");
    if (of.synchronous_steps > 0)
        out += core::text("              in each of the first ", core::grouped(of.synchronous_steps), " steps ",
                          core::grouped(of.synchronous_bytes), " bytes to average\n");
    line("              by ", of.all_reduce);
    out += core::text("memory        ", megabytes(of.memory_bytes), " MB on rank ", of.grid.rank, ": weights ",
                      megabytes(of.memory.weights), ", gradients ", megabytes(of.memory.gradients), ", optimizer ",
                      megabytes(of.memory.optimizer), ", activations ", megabytes(of.memory.activations),
                      " (scratch up to ", megabytes(of.memory.scratch), "), data ", megabytes(of.memory.data),
                      ", messages ", megabytes(of.memory.messages), "\n");
    return out;
}

#endif

}  // namespace lockstep::train

namespace lockstep {
using train::summary;
}  // namespace lockstep
