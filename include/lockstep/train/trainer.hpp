// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The trainer: a plan at work on the ranks of a communicator.
// Tested by tests/equivalence/same_bits.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/hash.hpp"
#include "lockstep/metrics/list.hpp"
#include "lockstep/model/binding.hpp"
#include "lockstep/tensor/container.hpp"
#include "lockstep/tensor/views.hpp"
#include "lockstep/train/checks.hpp"
#include "lockstep/train/engine/engine.hpp"
#include "lockstep/train/engine/inference.hpp"
#include "lockstep/train/engine/weights.hpp"
#include "lockstep/train/fit.hpp"
#include "lockstep/train/stepping.hpp"

namespace lockstep::train {

/// Trains one network on all ranks of a communicator. Collective members say so: every rank calls them, in the same
/// order. Allocates on construction; in a step in compress::any and adaptive, where rows of a model partition change in
/// number, and for a question to a rank that was waited for 20 ms. Errors: core::error, on all ranks alike; a rank that
/// fails tells the others, which throw comm::remote_failure. After errors of files, evaluated samples, local queries
/// and steps without rows it goes on. Each other ends with a line that says what the weights of its rank are (almost
/// always those of the last complete step: weights_state()); on several ranks later calls but local queries throw it.
template <class Plan>
class trainer : public stepping<Plan> {
    using core_type = engine<Plan>;
    using stepping<Plan>::core_;
    using T = typename core_type::T;
    using loss_type = typename core_type::loss_type;

public:
    using value_type = T;                                     ///< float or double
    using network = typename core_type::network;              ///< with its layers, parameters and statistics
    using input = typename core_type::input;                  ///< shape of a sample
    using output = typename core_type::output;                ///< shape of an output
    using label = typename core_type::label;                  ///< classes<n>, or a shape
    using label_element = typename core_type::label_element;  ///< int or the value type

    /// `ranks`: an MPI_Comm, a boost::mpi::communicator or a comm::group, which is duplicated. Collective.
    template <class Ranks, class P>
    trainer(const Ranks& ranks, const P& plan, const std::source_location& where = std::source_location::current())
        : trainer{group_of(ranks, plan, where), sound(plan), where, 0} {}

    /// At any time but within a fit(); what was the trainer before has nothing any more, and says so when it is used.
    /// Not collective: memory, groups and what is under way stay where they are.
    trainer(trainer&&) noexcept = default;
    /// The same; the weights that were here are given back.
    trainer& operator=(trainer&&) noexcept = default;

    /// Passes over a data set that every rank can read: rank r reads only the rows that it is dealt, and the first and
    /// last stage of a pipeline those of their group. `until`: epochs{n}, steps{n} or seconds{s}, counted from where
    /// the last fit() stopped, or until_epoch{n} or until_step{n}, counted from the start of the run. Returns what it
    /// did. `observers`: progress, logs, validate, checkpoint. Throws core::interrupted, on all ranks alike, where a
    /// signal has ended it (see ls::program). Collective.
    template <class Dataset, class Until, class... Observers>
    report::fit_made fit(const Dataset& set, Until until, Observers&&... observers) {
        if constexpr (check_until<Until>())
            if constexpr (check_dataset<Dataset, T, input, label, loss_type>()) {
                const auto run = [&] { return train::fit(*core_, *this, set, until, observers...); };
                const auto made = core_->on_all_ranks("fit", until.where, run);
                core_->end_if_told(made.stop_signal);
                return made;
            }
        return {};
    }

    /// Mean loss and accuracy over a data set that every rank can read, and a metric or several: `evaluate(set,
    /// metrics::list{mine{}})["mine"]`, or `.get<mine>()`. Equal bits on any number of ranks. Collective.
    template <class Dataset, class Also = metrics::list<>>
    report::evaluation_with<Also> evaluate(const Dataset& set, const Also& also = {},
                                           const std::source_location& where = std::source_location::current()) {
        if constexpr (check_dataset<Dataset, T, input, label, loss_type>())
            if constexpr (check_metrics<metrics::list_of<Also>, output, label, T>)
                return core_->on_all_ranks("evaluate", where, [&] { return forward_alone().evaluate(set, also); });
        return {};
    }

    /// The network's outputs for these rows, as an xtensor of rows x the output shape that owns its numbers: include
    /// lockstep/tensor/xtensor.hpp. Other ranks may bring other numbers of rows. Collective where a partition
    /// cuts the network and where workers have weights of their own (sync::local_sgd), else local.
    template <class X>
    auto predict(const X& x, const std::source_location& where = std::source_location::current()) {
        static_assert(tensor::has_views<const T>,
                      "lockstep: predict() gives an xtensor: #include \"lockstep/tensor/xtensor.hpp\"");
        return core_->on_all_ranks("predict", where, [&] {
            if constexpr (tensor::has_views<const T> && tensor::check_containers<X>())
                return forward_alone().predict(core_->samples.take_x(x));
        });
    }

    /// A parameter or a statistic of a layer (counted from 0) as an xtensor of rows x columns over the trainer's
    /// memory: include lockstep/tensor/xtensor.hpp; in a model partition, the columns of this rank. To be read, and
    /// before the next fit() or step(); observers ask anew, because new weights may be on their way. Collective where
    /// workers have weights of their own: their mean or centre. Throws core::error if there is none of that name.
    [[nodiscard]] auto weights(std::size_t layer, std::string_view name,
                               const std::source_location& where = std::source_location::current()) const {
        static_assert(tensor::has_views<const T>,
                      "lockstep: weights() gives an xtensor: #include \"lockstep/tensor/xtensor.hpp\"");
        require_layer(*core_, layer);
        const auto found = find_numbers<network>(layer, name, view("weights", where), core_->observed.running());
        if constexpr (tensor::has_views<const T>)
            return tensor::views<const T>::of(std::span<const T>{found.numbers}, found.extents);
    }

    /// All weights of the whole network, layer by layer, on every rank; their mean where workers have some of their
    /// own. Collective then and where a partition cuts the network. Allocates.
    [[nodiscard]] std::vector<T> all_weights(
        const std::source_location& where = std::source_location::current()) const {
        return look("all_weights", where, [&] { return gathered(whole_weights()); });
    }

    /// Takes over what all_weights() and running_statistics() of a trainer with the same network gave, on any number of
    /// ranks and in any partition; every rank passes all of it. The number of the step and the state of the optimizer
    /// stay as they are. Collective.
    void load_weights(std::span<const T> all, std::span<const T> statistics = {},
                      const std::source_location& where = std::source_location::current()) {
        core_->on_all_ranks("load_weights", where, [&] {
            require_loadable<network>(core_->ranks, all, statistics);
            core_->change.agree(
                core_->losses.pending(), [&] { core_->losses.start(); }, [&] { return core_->losses.progress(); },
                [] {});
            core_->change.begin();
            cut_weights<network>(all, core_->weights(), core_->grid, core_->own_layers());
            core_->tell_loaded();
            std::ranges::copy(statistics, core_->observed.running().begin());
            core_->change.loaded();
            core_->ranks.end_together();
        });
    }
    /// Weights and running statistics by name, in a safetensors file: for load_weights(), ls::predictor and other
    /// programs. Written by rank 0, and there as a whole or not. Throws core::error on all ranks alike. Collective.
    void save_weights(const std::string& path, const std::source_location& where = std::source_location::current()) {
        with_files([&](auto files) { files.save_weights(*core_, path, where, weights_now()); });
    }
    /// The same from such a file, or from state.safetensors of a checkpoint: names, shapes and network have to be those
    /// of this trainer. Every rank reads it.
    void load_weights(const std::string& path, const std::source_location& where = std::source_location::current()) {
        load_weights(path, layers_before{}, where);
    }
    /// layers_before{n}: those of n layers, of whatever network; all others stay (with sync::local_sgd, their mean).
    void load_weights(const std::string& path, layers_before some,
                      const std::source_location& where = std::source_location::current()) {
        const auto all = with_files([&](auto of) { return of.read_weights(*core_, path, some, where, weights_now()); });
        load_weights(all.first, all.second, where);
    }
    /// Remembers the epoch with the least loss on a validation set, and with `weights` those of now. Checkpoints have
    /// it. For observers such as early_stopping. Collective.
    void remember_best(std::uint64_t epoch, double loss, bool weights = true,
                       const std::source_location& where = std::source_location::current()) {
        core_->on_all_ranks("remember_best", where, [&] { train::remember_best(*core_, epoch, loss, weights); });
    }
    /// Its number, from 1; 0: none was remembered.
    [[nodiscard]] std::uint64_t best_epoch() const { return core_->best.epoch; }
    /// Its loss, or what else was given in its place: less is better.
    [[nodiscard]] double best_loss() const { return core_->best.loss; }
    /// Steps of the run that were done then. 0: none, or an older checkpoint does not say.
    [[nodiscard]] std::uint64_t best_step() const { return core_->best.step; }
    /// load_weights() of those that were remembered. Throws core::error where there are none. Collective.
    void load_best(const std::source_location& where = std::source_location::current()) {
        const auto kept = core_->on_all_ranks("load_best", where, [&] {
            if (core_->best.weights.empty())
                core::fail("no weights of a best epoch are kept", "let remember_best() keep them first");
            auto statistics = core_->best.statistics;
            join_statistics(*core_, std::span{statistics});
            return std::pair{gathered(core_->best.weights), std::move(statistics)};
        });
        load_weights(kept.first, kept.second, where);
    }

    /// The running statistics of all layers, one after the other: the same on every rank. None for a network without
    /// such layers. A view of the trainer's memory: the next step changes it. Collective in a pipeline, else local.
    [[nodiscard]] std::span<const T> running_statistics(
        const std::source_location& where = std::source_location::current()) const {
        if constexpr (core_type::has_stages)
            core_->on_all_ranks("running_statistics", where,
                                [&] { join_statistics(*core_, core_->observed.running()); });
        return core_->observed.running();
    }

    /// A hash of all_weights() and the running statistics: equal recipes give equal hashes on any number of ranks (but
    /// see plan::sums). Collective as all_weights() is.
    [[nodiscard]] std::uint64_t weights_hash(
        const std::source_location& where = std::source_location::current()) const {
        return look("weights_hash", where, [&] {
            return with_statistics(core::hash(std::as_bytes(std::span<const T>{gathered(whole_weights())})));
        });
    }
    /// A hash of the weights and statistics on this rank, for comparing replicas. Of a mean as weights() is.
    [[nodiscard]] std::uint64_t local_hash(const std::source_location& where = std::source_location::current()) const {
        return with_statistics(core::hash(std::as_bytes(view("local_hash", where))));
    }

    /// Shows all that outlives a step on this rank, one tensor::state_part (of T or of counters) after the other:
    /// weights, statistics, slots, residuals and factors of workers, what the strategy keeps. Collective.
    template <class Visitor>
    void visit_state(Visitor&& visit, const std::source_location& where = std::source_location::current()) {
        core_->on_all_ranks("visit_state", where, [&] { core_->visit_state(visit); });
    }
    /// Writes all of that to FOLDER/step-N, readable by any number of ranks. Of the newest `keep` steps the last
    /// checkpoint stays, others are deleted; 0: all stay. Returns its path. Throws core::error, on all ranks alike,
    /// where that cannot be: the trainer is as it was, the folder too unless step-N had its name. Collective.
    auto save(const std::string& folder, std::size_t keep = 0,
              const std::source_location& where = std::source_location::current()) {
        return with_files([&](auto files) { return files.save(*core_, folder, keep, where); });
    }
    /// The same on a thread, from a copy of the state, while the run goes on: what it returns has is_written(), and
    /// commit(keep), which is collective. A fit() has checkpoint{.write_behind = true}.
    auto save_behind(const std::string& folder, const std::source_location& where = std::source_location::current()) {
        return with_files([&](auto files) { return files.save_behind(*core_, folder, where); });
    }
    /// Goes on where the newest checkpoint in the folder (or the one that it is) ends, with the bits of a run that was
    /// not interrupted, on any number of ranks. `may_change`: lines of the recipe that need not be equal. Throws
    /// core::error where there is none, or one of another recipe, or a damaged one. Collective.
    void resume(const std::string& folder, const std::vector<std::string>& may_change = {},
                const std::source_location& where = std::source_location::current()) {
        with_files([&](auto files) { files.resume(*core_, folder, may_change, where); });
    }
    /// A hash of all of that and of how far the run is: of a recipe the same on any number of ranks. Collective.
    [[nodiscard]] std::uint64_t state_hash(const std::source_location& where = std::source_location::current()) {
        return core_->on_all_ranks("state_hash", where, [&] { return core_->state_hash(); });
    }

private:
    /// What cannot be made on one rank, for want of memory say, is told to all.
    trainer(comm::group ranks, const Plan& plan, const std::source_location& where, int) try : stepping
        <Plan>{plan, ranks, comm::watched_call(ranks.aborts(), "trainer", where)} {}
    catch (...) {
        if (ranks.size() > 1) tell_all(ranks);
        core::rethrow();
    }

    /// f(what writes and reads files).
    template <class F>
    static auto with_files(const F& f) {
        using files = checkpoints<Plan>;
        static_assert(files::are_included,
                      "lockstep: a trainer saves and loads files with #include \"lockstep/train/checkpoint.hpp\"");
        if constexpr (files::are_included) return f(files{});
    }

    /// A look at the weights: collective where `looks_are_collective`, else local and possible after a failure.
    template <class F>
    auto look(const char* name, const std::source_location& where, const F& f) const {
        if constexpr (core_type::looks_are_collective) return core_->on_all_ranks(name, where, f);
        const comm::watched_call here{core_->ranks.aborts(), name, where};
        return f();
    }

    /// The weights of the whole network, of those of this rank. Collective where a partition cuts it.
    [[nodiscard]] std::vector<T> gathered(std::span<const T> own) const { return gather_whole(*core_, own); }
    [[nodiscard]] auto weights_now() const {
        return [this] { return gathered(whole_weights()); };
    }
    /// The network's forward walk, without training.
    [[nodiscard]] inference<T, network, label, Plan> forward_alone() {
        return {.plan = core_->plan,
                .ranks = core_->ranks,
                .grid = core_->grid,
                .capacity = core_->capacity,
                .weights = whole_weights().data(),
                .statistics = core_->observed.place(),
                .key = core_->key(layer_api::mode::inference),
                .run = core_->run,
                .brought = core_->samples,
                .rows = core_->rows,
                .counts = core_->counts,
                .sums = core_->losses,
                .lines = core_->lines,
                .team = core_->team};
    }
    [[nodiscard]] std::uint64_t with_statistics(std::uint64_t hash) const noexcept {
        return network::statistics == 0
                   ? hash
                   : core::hash(std::as_bytes(std::span<const T>{core_->observed.running()}), hash);
    }
    /// Weights are complete wherever somebody looks at them.
    [[nodiscard]] std::span<T> whole_weights() const { return core_->whole_weights(); }
    /// The same, for a member that hands out a view of this rank.
    [[nodiscard]] std::span<T> view(const char* name, const std::source_location& where) const {
        if constexpr (core_type::has_worker_weights) return look(name, where, [&] { return whole_weights(); });
        return whole_weights();
    }
};

template <class Ranks, class P>
trainer(const Ranks&, const P&) -> trainer<sound_plan<P>>;

/// The trainer of a plan of this type, for a member of a class: `ls::trainer_of<decltype(my_plan)> trainer;`.
template <class P>
using trainer_of = trainer<sound_plan<std::remove_cvref_t<P>>>;

}  // namespace lockstep::train

namespace lockstep {
using train::trainer;
using train::trainer_of;
}  // namespace lockstep
