// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a trainer is made of, and its step.
// Tested by tests/equivalence/same_bits.cpp.

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/stop_request.hpp"
#include "lockstep/report/begun_files.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/saving/progress.hpp"
#include "lockstep/sync/commit.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/lane_sums.hpp"
#include "lockstep/train/algorithms.hpp"
#include "lockstep/train/checks.hpp"
#include "lockstep/train/engine/agreement.hpp"
#include "lockstep/train/engine/best_epoch.hpp"
#include "lockstep/train/engine/inference.hpp"
#include "lockstep/train/engine/inputs.hpp"
#include "lockstep/train/engine/lane_rows.hpp"
#include "lockstep/train/engine/make_memory.hpp"
#include "lockstep/train/engine/network_run.hpp"
#include "lockstep/train/engine/pipeline_lines.hpp"
#include "lockstep/train/engine/pipeline_run.hpp"
#include "lockstep/train/engine/refusals.hpp"
#include "lockstep/train/engine/stages.hpp"
#include "lockstep/train/engine/statistics.hpp"
#include "lockstep/train/engine/step_clock.hpp"
#include "lockstep/train/engine/time_limit.hpp"
#include "lockstep/train/engine/walks.hpp"
#include "lockstep/train/engine/weights.hpp"
#include "lockstep/train/recipe.hpp"

namespace lockstep::train {

/// What lockstep/train/checkpoint.hpp makes of it.
template <class Plan, class = void>
struct checkpoints {
    static constexpr bool are_included = false;
};

/// The parts of a trainer in the order in which they are made. Public to the headers of train/.
template <class Plan>
struct engine {
    using T = typename decltype(std::declval<Plan&>().precision)::type;
    using net = decltype(std::declval<Plan&>().model);
    using partition_type = decltype(std::declval<Plan&>().partition);
    using loss_type = decltype(std::declval<Plan&>().loss);
    using compressor_type = decltype(std::declval<Plan&>().compressor);
    static constexpr std::size_t shards = partition_type::shards, least_rows = least_lane_rows<net>;
    static constexpr bool has_stages = partition_type::stages > 1;
    using network = model::network<net, shards>;
    using input = typename network::input;
    using output = typename network::output;
    using label = typename loss_type::template label<output>;
    using label_element = tensor::label_element<label, T>;
    using run_type = run_of<T, net, partition_type>;
    using types = sync::run_types<T, network, decltype(std::declval<Plan&>().optimizer), compressor_type,
                                  decltype(std::declval<Plan&>().clip), decltype(std::declval<Plan&>().factors)>;
    using sync_type = decltype(std::declval<Plan&>().sync);
    using method = typename sync::step_types<types, sync_type>::method;
    using strategy_type = typename sync_type::template strategy<types>;
    static constexpr bool has_worker_weights = sync::has_worker_weights<strategy_type>;
    /// Whether ranks that share a worker add by messages, whatever goes through shared memory.
    [[nodiscard]] bool adds_inside() const noexcept { return has_worker_weights && grid.ranks > grid.workers; }
    static constexpr bool looks_are_collective = shards > 1 || has_stages || has_worker_weights;  // at all weights
    static constexpr bool cuts_network = shards > 1 || has_stages;
    using walks_type = std::conditional_t<has_worker_weights, worker_walks, single_walk>;
    using clock = std::chrono::steady_clock;

    [[gnu::cold]] engine(const Plan& given, const comm::group& all, const comm::watched_call&)
        : plan{with_algorithms(given)},
          ranks{all.size() > 1 ? all : comm::group{}},  // alone, what fails here is nothing to others of the group
          grid{[&] {
              check(given);
              require_trained_tensors<network>(given.optimizer);
              const std::size_t workers = !method::has_workers && !has_worker_weights ? 0
                                          : given.workers > 0                         ? given.workers
                                                              : ranks.size() / partition_type::stages;
              const auto made = partition::make_grid<partition_type>(ranks.rank(), ranks.size(), given.lanes, workers);
              plan_text mine = recipe_of(plan, made.workers);
              for (auto& one : machine_of(plan)) mine.push_back(std::move(one));
              agree(ranks, mine);
              return made;
          }()},
          stage{grid.of_stage()},
          group{cuts_network ? ranks.split(grid.replica(), grid.rank % grid.group_size()).named("values")
                             : comm::group{}},
          replicas{cuts_network ? ranks.split(grid.rank % grid.group_size(), grid.replica()) : ranks},
          peers{has_stages ? replicas : ranks},
          sharing{method::has_workers ? sync::make_sharing_group(stage, peers) : comm::group{}},
          team{static_cast<int>(given.threads)},
          capacity{deal::capacity(given.batch, grid, least_rows)},
          rows{grid},
          walks{grid},
          rule{ranks, given.all_reduce, given.sums, measures<T, network>(given, adds_inside())},
          least_bucket{sync::least_bucket<T>(given, rule, stage)},
          memory{make_memory(*this)},
          change{ranks, memory.parts(), arena},
          run{make_run(*this)},
          strategy{sync::setup<Plan>{plan, stage, peers, replicas, sharing, least_bucket, rule, team, arena,
                                     memory.parts(), memory.inside(), change, capacity, rows.lengths(), false,
                                     own_layers(), &ranks, partition_type::stages}},
          observed{stage, peers.named("statistics"), rule, team, arena},
          losses{grid, ranks.named("losses")},
          counts{grid, ranks.named("rows")},
          samples{grid.is_between() ? capacity : deal::capacity(given.batch, stage, least_rows),
                  given.prefetch,
                  team,
                  arena,
                  loss::target_range<loss_type>,
                  capacity},
          lines{run, grid, group, rows, team},
          weight_slice{reserve_weights(*this)} {
        arena.allocate();
        run.bind(arena, strategy.thread());
        strategy.bind(arena);
        observed.bind(arena);
        samples.bind(arena);
        observed.initialise(given.seed, given.initialise);
        totals.ranks = grid.ranks;
        totals.threads = given.threads;
        initialise_weights<network>(weights(), grid, given.seed, given.initialise, own_layers());
        tell_loaded();
        require_equal_weights<network>(ranks, grid, std::span<const T>{weights()},
                                       std::span<const T>{observed.running()}, own_layers());
        ranks.end_together();
    }
    [[gnu::cold]] ~engine() = default;
    /// Where this rank fails, all others are told why and fail too; after an error that all have agreed on they go on.
    template <class F>
    decltype(auto) on_all_ranks(const char* name, const std::source_location& where, F&& f) {
        const comm::collective_call here{ranks.aborts(), name, where};
        // After a failure messages of the broken step are still under way, and would be taken for those of the next
        // one. And what a compressor carries over to the next step is that of the broken one.
        // Alone and without such a state nothing is left over, and a later call may go on; not where a resume() has
        // failed half way.
        const bool stays_failed = ranks.size() > 1 || compress::keeps_state<compressor_type> ||
                                  optim::Proposes<typename types::optimizer, T> || is_lost;
        try {
            if (stays_failed) ranks.check();
            strategy.complete();
            return f();
        } catch (const saving::agreed_error& failure) {
            // Files of all ranks alike, between two steps: the run may go on. Nothing is under way then: an observer
            // that does not look at weights was told before they had arrived.
            if (!failure.is_of(ranks)) fail_for_good(stays_failed);
            try {
                strategy.complete();
            } catch (...) {
                fail_for_good(stays_failed);
            }
            throw;
        } catch (...) {
            fail_for_good(stays_failed);
        }
    }
    /// Throws core::error for what an observer may not call.
    [[gnu::cold]] void require_no_fit(std::string_view what) const {
        if (is_in_fit)
            core::fail(core::text(what, " was called by an observer, within a fit() of this trainer"),
                       "return false from on_step() or on_epoch(), and call it after the fit()");
    }
    /// In a handler.
    [[noreturn, gnu::cold]] void fail_for_good(bool tells_all) {
        if (tells_all) tell_all(ranks);
        strategy.abandon();
        if (!tells_all && change.state().is_torn) {
            is_lost = true;
            tell_all(ranks);
        }
        const std::span<const T> own = trained_weights();
        change.found(kernels::first_non_finite(own) == own.size());
        rethrow_with(change.state().text(grid.rank, has_stages ? core::text("stage ", grid.stage()) : std::string{}));
    }
    /// Layers of the network that this rank trains.
    [[nodiscard]] parallel::block own_layers() const noexcept {
        if constexpr (has_stages) return run.own_layers();
        return {0, network::size};
    }
    /// Rows of a minibatch that this rank reads of a data set: its own, or those of its pipeline where it begins or
    /// ends one.
    [[nodiscard]] parallel::block rows_to_read(std::size_t of) const noexcept {
        if (grid.is_between()) return {0, 0};
        return deal::own_rows(of, stage, least_rows);
    }
    /// Rows that ranks brought, where this rank needs them: its own, or those of its pipeline. Collective there.
    [[nodiscard]] std::pair<const T*, const label_element*> of_group(const T* x, const label_element* y) {
        if constexpr (has_stages) {
            x = lines.samples_of_group(x);
            y = lines.labels_of_group(y);
            totals.bytes_sent += lines.rows_sent();
        }
        return {x, y};
    }
    /// What this rank walks over with one of its sets of weights.
    [[nodiscard]] walk begin_walk(std::size_t set, std::uint64_t step) {
        walk out = walks.begin(set, rows);
        if constexpr (has_worker_weights) out.samples = strategy.begin_walk(set, rows.lengths(), step);
        return out;
    }
    /// Forward over the rows of the walk; after the last one what the layers observe sets off.
    [[nodiscard]] tensor::batch<const T, output> forward(const walk& here, const T* x) {
        const auto out =
            run.forward(weights(here.set).data(), x + here.first_row * input::size, here.rows,
                        key(layer_api::mode::training), observed.place(here.set), strategy.weights_needed());
        strategy.forward_done();
        if (here.set + 1 == walks.count()) observed.start();
        return out;
    }

    /// The loss of each lane and the gradient of the output. Returns the learning rate, which travels with the losses.
    double compute_loss(const walk& here, tensor::batch<const T, output> out, const label_element* all,
                        std::uint64_t step) {
        const auto dy = run.output_gradient(here.rows);
        const auto scale = static_cast<T>(1.0 / static_cast<double>(here.samples));
        const label_element* const y = all + here.first_row * tensor::label_size<label>;
        parallel::for_each(team, here.rows.own().count(), [&](std::size_t lane) noexcept {
            const auto own = here.rows.own().blocks()[lane];
            const auto [part, target] = of_rows<label>(out, y, own);
            losses(here.first_lane + lane, 0) = plan.loss(part, target, dy.part(own.first, own.size()), scale);
        });
        return tell_rate(step);
    }
    /// What travels with the losses: the learning rate, which it returns, and whether the run goes on.
    double tell_rate(std::uint64_t step) {
        const double rate = trial_rate ? *trial_rate : static_cast<double>(plan.schedule(step));
        losses.fill(2, rate);
        // Half a number more says on rank 0, which has the first lane, that the time is over.
        const double signal = core::stop_request::signal();
        losses.fill(
            3, limit.is_set() && grid.rank == 0 && limit.is_over(clock::now(), walks.count()) ? signal + 0.5 : signal);
        return rate;
    }

    /// All ranks agree on the step, then weights change. Returns the mean loss. Throws core::error, on all ranks alike,
    /// where a rate, a loss, a norm or a mean of the statistics makes no sense: no weight has changed then.
    double commit(double rate, std::uint64_t step) {
        // Who has all losses knows that no rank can fail any more in this step: only now may weights change.
        const double loss = strategy.reduce_loss(losses, step) / static_cast<double>(rows.rows());
        if (const std::size_t lane = losses.first_other(2); lane < grid.lanes || !(std::isfinite(rate) && rate >= 0))
            refuse_rate(change, losses, grid, lane, step + 1);
        const bool is_trial = trial_rate.has_value();
        if (!std::isfinite(loss) && !is_trial) refuse_step(change, core::text("the loss is ", loss), step + 1);
        if constexpr (types::has_norms)
            if (const std::size_t bad = strategy.measure_norms(weights());
                bad < sync::tensor_count<network>() && !is_trial)
                refuse_norm<network>(change, bad, step + 1);
        // Its messages go before the weights, or they would wait for these.
        if constexpr (network::statistics > 0) {
            const auto watch = clock::now();
            bool is_finite = observed.finish(rows.rows());
            if constexpr (has_stages) is_finite = std::ranges::max(counts.gather(is_finite ? 0 : 1)) == 0;
            if (!is_finite && !is_trial) refuse_step(change, "a mean of what layers observe is not finite", step + 1);
            change.begin();
            observed.absorb(plan.model, own_layers());
            strategy.times().waited_beside(watch);
        }
        const bool finite = strategy.commit(arena[weight_slice], rate, step);
        ++totals.steps;
        ranks.aborts().passed();
        if (!finite && !is_trial) {
            strategy.complete();
            refuse_weights<network>(spoilt_weights(), totals.steps, has_worker_weights);
        }
        return loss;
    }

    /// One step on the rows of the deal: forward, loss, backward, commit.
    report::step_event run_step(const T* x, const label_element* y) {
        const std::uint64_t step = totals.steps;
        minibatch = minibatch_of(step);
        const auto turns = strategy.step_in_turns();
        losses.clear();
        double rate = 0;
        const auto place = [&](std::size_t layer) { return strategy.gradient_location(layer); };
        const auto ready = [&](std::size_t layer) {
            strategy.gradient_ready(layer, step, [&] {
                observed.poll();
                ranks.aborts().glance();
            });
        };
        if constexpr (has_stages) {
            rate = train_stages(*this, x, y, step, place, ready);
        } else {
            for (std::size_t set = 0; set < walks.count(); ++set) {  // one, unless workers have weights of their own
                step_clock<engine> watch{*this};
                const walk here = begin_walk(set, step);
                const auto out = forward(here, x);
                rate = compute_loss(here, out, y, step);
                watch.forward_done();
                run.backward(weights(set).data(), here.rows, key(layer_api::mode::training), place, ready);
                watch.backward_done();
            }
        }
        const double loss = commit(rate, step);
        totals.samples += rows.rows();
        ++totals.timed_steps;
        totals.timed_samples += rows.rows();
        totals.bytes_sent +=
            bytes_of(step) + run.redistributed_bytes() + losses.bytes_sent() + observed.bytes_per_step();
        return {.step = totals.steps,
                .epoch = epoch + 1,
                .samples = rows.rows(),
                .loss = loss,
                .rate = rate,
                .stop_signal = static_cast<int>(losses.largest(3)),
                .time_is_over = losses.at(0, 3) != std::trunc(losses.at(0, 3))};
    }

    /// Throws core::interrupted where a signal has ended a fit.
    void end_if_told(int signal) const {
        if (signal != 0) throw core::interrupted{signal, totals.steps, grid.rank == 0};
    }

    /// Shows what outlives a step. Weights are complete. `after`: as after prepare_state(after), to be laid out and
    /// compared; nothing changes, and the numbers are not those of the run.
    template <class Visitor>
    void visit_state(Visitor&& visit, std::optional<std::uint64_t> after = {}) {
        if constexpr (has_worker_weights) {
            for (std::size_t set = 0; set < walks.count(); ++set)
                visit_weights<network>(
                    [&](tensor::state_part<T> part) {
                        const bool is_weight = part.role == "weights";
                        if (is_weight) part.worker = strategy.worker_of(set);
                        if (is_weight) part.speaks = strategy.speaks();
                        if (is_weight || set == 0) visit(part);
                    },
                    weights(set), observed.running(), grid, own_layers());
        } else {
            visit_weights<network>(visit, weights(), observed.running(), grid, own_layers());
        }
        if constexpr (requires { strategy.visit_state_after(std::uint64_t{}, weights(), visit); })
            after ? strategy.visit_state_after(*after, weights(), visit) : strategy.visit_state(visit);
        else
            strategy.visit_state(visit);
        if (!best.weights.empty())
            visit_weights<network>(
                [&](tensor::state_part<T> part) {
                    part.role = part.role == "weights" ? "best weights" : "best statistics";
                    visit(part);
                },
                std::span{best.weights}, std::span{best.statistics}, grid, own_layers());
    }

    /// Of all that visit_state() shows on all ranks, and of how far the run is. Collective.
    [[nodiscard, gnu::cold]] std::uint64_t state_hash() {
        tensor::state_hash sum;
        visit_state(sum);
        std::uint64_t out = 0;
        for (const std::uint64_t one : ranks.gather_all(sum.sum())) out += one;
        for (const std::uint64_t one : {totals.steps, epoch, std::uint64_t{position}}) out = core::mix(out) + one;
        return out;
    }

    /// Makes the state one that a run of so many steps has: what visit_state() shows then can be overwritten.
    /// Collective.
    [[gnu::cold]] void prepare_state(std::uint64_t steps) {
        if constexpr (requires { strategy.prepare_state(steps); }) strategy.prepare_state(steps);
    }
    /// All that visit_state() shows has been overwritten with the state of a run that is so far. Collective.
    [[gnu::cold]] void restored(const saving::progress& at) {
        if constexpr (requires { strategy.restored(); }) strategy.restored();
        totals.steps = at.steps;
        totals.samples = at.samples;
        epoch = at.epoch;
        position = at.position;
        restored_set = at.set;
        epoch_loss = at.epoch_loss.value_or(0);
        epoch_samples = at.epoch_loss ? at.loss_samples.value_or(at.position) : 0;
        best.epoch = at.best_epoch;
        best.loss = at.best_loss;
        best.step = at.best_step;
        resumed_after = at.steps;
        is_first_fit = true;
        order.clear();
        change.end(at.steps);
    }
    /// Samples of the data set that `position` counts in; 0: fit() has seen none.
    [[nodiscard]] std::size_t samples_of_set() const noexcept { return order.empty() ? restored_set : order.size(); }

    [[nodiscard]] step_key key(layer_api::mode mode) const noexcept {
        return {plan.seed, mode == layer_api::mode::training ? minibatch : totals.steps, mode};
    }
    /// Of the run, which a step is to train on: its own, or that of a measured run that is replayed.
    [[nodiscard]] std::uint64_t minibatch_of(std::uint64_t step) const noexcept {
        if constexpr (requires { strategy.minibatch_of(step); }) return strategy.minibatch_of(step);
        return step;
    }
    /// Those that are here; complete() of the strategy brings what is under way. `set`: of which worker of this rank,
    /// where each has some.
    [[nodiscard]] std::span<T> weights(std::size_t set = 0) noexcept {
        return arena[weight_slice].subspan(set * network::parameters_here, network::parameters_here);
    }
    /// Those of the layers that this rank trains, of all of its workers.
    [[nodiscard]] std::span<T> trained_weights() noexcept {
        if constexpr (!has_stages) return arena[weight_slice];
        const auto [first, last] = own_layers();
        const std::size_t begin = weights_before<network>(first);
        return arena[weight_slice].subspan(begin, weights_before<network>(last) - begin);
    }
    /// Weights for who looks at them: all that were under way, and the mean where workers have weights of their own.
    /// Collective then.
    [[nodiscard]] std::span<T> whole_weights() {
        if constexpr (has_worker_weights) return strategy.mean(arena[weight_slice]);
        strategy.complete();
        return weights();
    }

    /// Weights are those of the start, or of load_weights().
    [[gnu::cold]] void tell_loaded() {
        if constexpr (has_worker_weights) strategy.spread(arena[weight_slice]);
        if constexpr (requires { strategy.loaded(weights()); }) strategy.loaded(arena[weight_slice]);
    }

    /// Nothing of it is done.
    void begin_epoch() noexcept {
        position = epoch_samples = 0;
        epoch_loss = 0;
    }

    /// Since the last call.
    report::seconds_spent spent_since() noexcept {
        const auto now = strategy.times().added_to(totals.seconds);
        return now - std::exchange(told, now);
    }

    /// What the strategy sends in a step.
    [[nodiscard]] std::size_t bytes_of(std::uint64_t step) const noexcept {
        if constexpr (requires { strategy.bytes_of(step); }) return strategy.bytes_of(step);
        return strategy.bytes_per_step();
    }
    /// The first set that is not finite, or one of which only slots or gradients are not.
    [[nodiscard, gnu::cold]] std::span<const T> spoilt_weights() noexcept {
        std::size_t set = 0;
        while (set + 1 < walks.count() &&
               kernels::first_non_finite(std::span<const T>{weights(set)}) == network::parameters_here)
            ++set;
        return weights(set);
    }

    Plan plan;
    comm::group ranks;  // all
    partition::grid grid;
    partition::grid stage;  // that of the ranks that train the same layers: all, or the replicas of a stage
    comm::group group;      // the model group, or the pipeline
    comm::group replicas;   // the ranks with the same shard or stage
    comm::group peers;      // those that train the same layers
    comm::group sharing;   // the ranks that share a worker with this one, where gradients have workers
    parallel::team team;
    std::size_t capacity;
    tensor::arena arena;
    deal rows;
    walks_type walks;
    reduce::sum_rule rule;
    std::size_t least_bucket;  // parameters, at least
    typename method::memory memory;
    sync::commit change;
    run_type run;
    strategy_type strategy;
    statistics<T, network> observed;
    sync::step_sums losses;
    sync::row_counts counts;
    inputs<T, input, label> samples;
    [[no_unique_address]] lines_of<T, net, label, partition_type> lines;
    tensor::slice<T> weight_slice;
    std::vector<std::uint64_t> order;  // of the samples of an epoch
    std::uint64_t epoch = 0;
    std::uint64_t minibatch = 0;  // of the step that runs
    std::size_t position = 0;
    double epoch_loss = 0;            // of the epoch: the sum over the samples that are done ..
    std::size_t epoch_samples = 0;    // .. of which these are known: of an old checkpoint there are less
    std::uint64_t resumed_after = 0;  // steps of the checkpoint that the run goes on from
    bool is_first_fit = true;         // since then, or at all
    std::uint64_t resumes = 0, number = report::next_run();  // how often it was resumed, and of the trainer
    bool is_in_fit = false;
    bool is_lost = false;          // alone, by a failure in the middle of a change
    std::size_t restored_set = 0;  // samples_of_set() of a run that goes on
    best_epoch<T> best;
    time_limit limit;
    std::optional<double> trial_rate;  // in place of the schedule's; steps with it may spoil all weights
    report::totals totals;
    report::seconds_spent told;
};

}  // namespace lockstep::train
