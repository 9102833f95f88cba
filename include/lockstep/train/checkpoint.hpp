// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A trainer's checkpoints: its state goes out and comes back. Include it where a program saves or resumes; the trainer
// alone does not need it, and compiles without it in less time.
// Tested by tests/equivalence/checkpoints.cpp.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/saving/observer.hpp"
#include "lockstep/saving/save.hpp"
#include "lockstep/saving/weight_file.hpp"
#include "lockstep/train/engine/engine.hpp"

namespace lockstep::train {

/// What the trainer shows now, and where it lies in a file. `after`: as it will after prepare_state(after), to be
/// compared alone. Collective.
template <class Plan>
struct shown_state {
    saving::state_parts parts;
    std::optional<saving::state_layout> layout;

    [[gnu::cold]] explicit shown_state(engine<Plan>& core, std::optional<std::uint64_t> after = {}) {
        using network = typename engine<Plan>::network;
        core.visit_state(parts, after);
        layout.emplace(core.ranks, parts, saving::names_of<network>(), core.grid.shards, core.grid.workers);
    }
};

/// What trainer::save() and trainer::resume() do.
template <class Plan>
struct checkpoints<Plan, void> {
    static constexpr bool are_included = true;

    [[gnu::cold]] static std::string save(engine<Plan>& core, const std::string& folder, std::size_t keep,
                                          const std::source_location& where) {
        std::string path;
        core.on_all_ranks("save", where, [&] {
            const shown_state<Plan> state{core};
            path = saving::save(core.ranks, folder, facts_of(core), state.parts, *state.layout, keep);
        });
        return path;
    }

    [[gnu::cold]] static std::unique_ptr<saving::background> save_behind(engine<Plan>& core, const std::string& folder,
                                                                         const std::source_location& where) {
        std::unique_ptr<saving::background> out;
        core.on_all_ranks("save_behind", where, [&] {
            const shown_state<Plan> state{core};
            const saving::long_waits others{core.ranks};
            out = std::make_unique<saving::background>(core.ranks, folder, facts_of(core), state.parts, *state.layout);
        });
        return out;
    }

    [[gnu::cold]] static void resume(engine<Plan>& core, const std::string& folder,
                                     const std::vector<std::string>& may_change, const std::source_location& where) {
        core.on_all_ranks("resume", where, [&] {
            core.require_no_fit("resume()");
            const auto from = saving::open(core.ranks, folder);
            saving::together(core.ranks, [&] {
                saving::require_same_recipe(from.facts.recipe, recipe_of(core.plan, core.grid.workers), may_change,
                                            from.path);
            });
            // Weights of a best epoch are a part of the state where the run had some.
            const auto has = [&](std::string_view name) {
                return std::ranges::any_of(from.file.tensors, [&](const auto& one) { return one.name == name; });
            };
            constexpr std::string_view mark = ".best";  // a parameter may be called so as well
            auto best = std::exchange(core.best, {});
            try {
                if (std::ranges::any_of(from.file.tensors, [&](const auto& one) {
                        return one.name.ends_with(mark) && has(one.name.substr(0, one.name.size() - mark.size()));
                    })) {
                    core.best.weights.resize(core.weights().size());
                    core.best.statistics.resize(core.observed.running().size());
                }
                // What depends on the number of steps is compared as it will be: nothing has changed yet.
                const shown_state<Plan> then{core, from.facts.at.steps};
                saving::together(core.ranks, [&] { saving::require_same_arrays(from, *then.layout); });
            } catch (...) {
                core.best = std::move(best);
                throw;
            }
            core.change.begin();
            try {
                core.prepare_state(from.facts.at.steps);
                const shown_state<Plan> state{core};
                saving::restore(core.ranks, from, state.parts, *state.layout);
            } catch (const saving::agreed_error& failure) {
                throw core::error{failure.what()};  // no trainer goes on with a part of a state
            }
            core.restored(from.facts.at);
            ++core.resumes;
            core.ranks.end_together();
        });
    }

    /// `gather` returns the weights of the whole network; collective where a rank does not have them.
    template <class Gather>
    [[gnu::cold]] static void save_weights(engine<Plan>& core, const std::string& path,
                                           const std::source_location& where, const Gather& gather) {
        using T = typename engine<Plan>::T;
        core.on_all_ranks("save_weights", where, [&] {
            core.ranks.end_together();  // all of them have come
            std::vector<T> all;
            if constexpr (engine<Plan>::looks_are_collective) all = gather();
            const saving::long_waits others{core.ranks};
            saving::together(core.ranks, [&] {
                if (core.ranks.rank() != 0) return;
                if constexpr (!engine<Plan>::looks_are_collective) all = gather();
                saving::write_weights(path, names_of(core), std::span<const T>{all},
                                      std::span<const T>{core.observed.running()});
            });
        });
    }
    /// Weights and running statistics of the whole network: those of `some` layers from the file, others as they are.
    template <class Gather>
    [[gnu::cold]] static auto read_weights(engine<Plan>& core, const std::string& path, layers_before some,
                                           const std::source_location& where, const Gather& gather) {
        using T = typename engine<Plan>::T;
        using network = typename engine<Plan>::network;
        std::pair<std::vector<T>, std::vector<T>> out;
        core.on_all_ranks("load_weights", where, [&] {
            core.ranks.end_together();
            const bool are_some = some.count != core::largest_size;
            if constexpr (engine<Plan>::looks_are_collective)
                if (are_some) out.first = gather();
            const saving::long_waits others{core.ranks};
            if (const auto one = saving::checkpoint_of(core.ranks, path); !one.empty())
                (void)saving::open(core.ranks, one);
            saving::together(core.ranks, [&] {
                if (are_some && some.count > network::size)
                    core::fail(core::text("load_weights() was to load ", some.count, " layers, and the network has ",
                                          network::size),
                               "name as many as both networks have in common");
                core::with_memory("a copy of all weights", (network::parameters + network::statistics) * sizeof(T),
                                  "use a machine with more memory, or fewer ranks on this one", [&] {
                                      out.first.resize(network::parameters);
                                      out.second.resize(network::statistics);
                                  });
                if constexpr (!engine<Plan>::looks_are_collective)
                    if (are_some) out.first = gather();
                if (are_some) std::ranges::copy(core.observed.running(), out.second.begin());
                saving::read_weights(path, names_of(core), std::span{out.first}, std::span{out.second},
                                     are_some ? some.count : core::largest_size);
            });
        });
        return out;
    }

private:
    [[nodiscard, gnu::cold]] static saving::manifest facts_of(const engine<Plan>& core) {
        saving::manifest out;
        out.at = {
            .steps = core.totals.steps,
            .epoch = core.epoch,
            .position = core.position,
            .samples = core.totals.samples,
            .set = core.samples_of_set(),
            .epoch_loss = core.epoch_samples > 0 ? std::optional{core.epoch_loss} : std::nullopt,
            .loss_samples = core.epoch_samples != core.position ? std::optional{core.epoch_samples} : std::nullopt,
            .best_epoch = core.best.epoch,
            .best_loss = core.best.loss,
            .best_step = core.best.step};
        out.recipe = recipe_of(core.plan, core.grid.workers);
        return out;
    }
    [[nodiscard, gnu::cold]] static saving::weight_names names_of(const engine<Plan>& core) {
        saving::weight_names out{saving::names_of<typename engine<Plan>::network>(), {}};
        for (auto& [name, value] : recipe_of(core.plan, core.grid.workers))
            if (name == "network") out.network = std::move(value);
        return out;
    }
};

/// `.workers` of the newest checkpoint in the folder (or of the one that it is), for the plan of a run that goes on
/// from it on another number of ranks; 0 where there is none, or where nothing in its recipe has workers. `ranks`: as
/// for a trainer; `timeout`: as in a plan. Throws core::error on all ranks alike. Collective.
template <class Ranks>
[[nodiscard, gnu::cold]] std::size_t workers_in(const Ranks& ranks, const std::string& folder,
                                                std::optional<std::chrono::duration<double>> timeout = {},
                                                const std::source_location& where = std::source_location::current()) {
    const comm::group all = comm::make_group(ranks, where, timeout.value_or(comm::default_timeout()));
    if (!saving::exists_in(all, folder)) return 0;
    std::size_t out = 0;
    for (const auto& [name, value] : saving::open(all, folder).facts.recipe)
        if (name == "workers") std::from_chars(value.data(), value.data() + value.size(), out);
    return out;
}

}  // namespace lockstep::train

namespace lockstep {
using train::workers_in;
}  // namespace lockstep
