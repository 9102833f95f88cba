// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The trainer: a plan at work on the ranks of a communicator.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
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
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/algorithms.hpp"
#include "lockstep/train/averaging.hpp"
#include "lockstep/train/checks.hpp"
#include "lockstep/train/commit.hpp"
#include "lockstep/train/events.hpp"
#include "lockstep/train/inference.hpp"
#include "lockstep/train/inputs.hpp"
#include "lockstep/train/lane_rows.hpp"
#include "lockstep/train/lane_sums.hpp"
#include "lockstep/train/observers.hpp"
#include "lockstep/train/read_ahead.hpp"
#include "lockstep/train/recipe.hpp"
#include "lockstep/train/refusals.hpp"
#include "lockstep/train/statistics.hpp"
#include "lockstep/train/weights.hpp"

namespace lockstep::train {

/// Trains one network on all ranks of a communicator. All members but the plain queries are collective: every rank calls them in the same
/// order. Allocates on construction, and where a minibatch brings other numbers of rows to a model partition; not in a step, but
/// for the letter in which a rank asks another one where it is when it has waited for it for 20 ms.
/// Errors: core::error, on all ranks alike; a rank that fails tells the others, which throw comm::remote_failure. Each error ends with a line
/// that says what the weights of its rank are (weights_state()): almost always those of the last complete step. On several ranks a trainer
/// that has failed does nothing more: each further call throws the same again.
template <class Plan>
class trainer {
    using T = typename decltype(std::declval<Plan&>().precision)::type;
    using net = decltype(std::declval<Plan&>().model);
    using partition_type = decltype(std::declval<Plan&>().partition);
    using loss_type = decltype(std::declval<Plan&>().loss);
    static constexpr std::size_t shards = partition_type::shards, least_rows = least_lane_rows<net>;
    using run_type = network_run<T, net, shards>;
    using averaging_type =
        averaging<T, model::network<net, shards>, decltype(std::declval<Plan&>().optimizer), decltype(std::declval<Plan&>().compressor)>;

public:
    using value_type = T;
    using network = model::network<net, shards>;
    using input = typename network::input;
    using output = typename network::output;
    using label = typename loss_type::template label<output>;
    using label_element = tensor::label_element<label, T>;

    /// `ranks`: an MPI_Comm or a boost::mpi::communicator, which is duplicated, or a comm::group. Collective.
    template <class Ranks, class P>
    trainer(const Ranks& ranks, const P& plan, const std::source_location& where = std::source_location::current())
        : trainer{group_of(ranks, where), sound(plan), where, 0} {}

    trainer(const trainer&) = delete;
    trainer& operator=(const trainer&) = delete;
    /// After a failure the memory that MPI may still read stays until the end of the program.
    ~trainer() {
        if (ranks_.size() == 1 || !ranks_.notices().failed()) return;
        comm::keep(std::move(arena_));
    }

    /// Passes over a data set that every rank can read: rank r reads only the rows that it is dealt. `until` is epochs{n} or steps{n},
    /// counted from where the last fit() stopped. `observers`: progress, logs, validate.
    template <class Dataset, class Until, class... Observers>
    void fit(const Dataset& set, Until until, Observers&&... observers) {
        static_assert(is_epochs_or_steps<Until>, "lockstep: fit runs until epochs{n} or steps{n}");
        if constexpr (is_epochs_or_steps<Until> && check_dataset<Dataset, T, input, label, loss_type>())
            on_all_ranks("fit", until.where, [&] { fit_checked(set, until, observers...); });
    }

    /// One step on rows that each rank already has in memory, also none; together they are the minibatch. A rank has room for the rows that
    /// fit() would deal it of a full one: batch x its lanes / lanes, rounded up. Where weights of a strip become infinite or NaN, its owner
    /// throws; the other ranks do at the latest in their next call.
    /// `x`: rows x the input shape; `y`: a class number, or the wanted output, for each row. x is not copied if its elements are T.
    template <class X, class Y>
    step_event step(const X& x, const Y& y, const std::source_location& where = std::source_location::current()) {
        return on_all_ranks("step", where, [&] {
            averaging_.begin_step(report_.steps + 1);
            const auto rows = brought_.take(x, y);
            deal_.brought(counts_.gather(rows.count));
            if (deal_.rows() == 0) core::fail("no rank brought a sample to this step", "call step() with at least one row on some rank");
            require_step_rows<net>(deal_, grid_);
            auto event = run_step(rows.x, rows.y);
            averaging_.settle();
            ranks_.notices().passed();
            event.spent = spent_since();
            return event;
        });
    }

    /// Mean loss and accuracy over a data set that every rank can read, and further metrics: `evaluate(set,
    /// metrics::list{mine{}})["mine"]`. Equal bits for any number of ranks.
    template <class Dataset, class... Metrics>
    evaluation evaluate(const Dataset& set, const metrics::list<Metrics...>& also = {},
                        const std::source_location& where = std::source_location::current()) {
        constexpr bool metrics_fit = (check_metric<Metrics, output, label, T>() && ...);
        if constexpr (check_dataset<Dataset, T, input, label, loss_type>() && metrics_fit)
            return on_all_ranks("evaluate", where, [&] { return forward_alone().evaluate(set, also); });
        else
            return {};
    }

    /// The network's outputs for these rows, as an xtensor of rows x the output shape that owns its numbers: include
    /// lockstep/tensor/xtensor.hpp. Other ranks may bring other numbers of rows. Collective in a model partition, else local.
    template <class X>
    auto predict(const X& x, const std::source_location& where = std::source_location::current()) {
        static_assert(tensor::has_views<const T>, "lockstep: predict() gives an xtensor: #include \"lockstep/tensor/xtensor.hpp\"");
        return on_all_ranks("predict", where, [&] {
            if constexpr (tensor::has_views<const T>) return forward_alone().predict(brought_.take_x(x));
        });
    }

    /// A parameter or a statistic of a layer (counted from 0) as an xtensor of rows x columns over the trainer's memory: include
    /// lockstep/tensor/xtensor.hpp; in a model partition, the columns of this rank. To be read, and before the next fit() or step();
    /// observers ask anew, because new weights may be on their way. Throws core::error if there is none of that name.
    [[nodiscard]] auto weights(std::size_t layer, std::string_view name) const {
        static_assert(tensor::has_views<const T>, "lockstep: weights() gives an xtensor: #include \"lockstep/tensor/xtensor.hpp\"");
        const auto found = find_numbers<network>(layer, name, landed_weights(), statistics_.running());
        if constexpr (tensor::has_views<const T>) return tensor::views<const T>::of(std::span<const T>{found.numbers}, found.extents);
    }

    /// All weights of the whole network, layer by layer, on every rank. Collective in a model partition. Allocates.
    [[nodiscard]] std::vector<T> all_weights(const std::source_location& where = std::source_location::current()) const {
        return look("all_weights", where, [&] { return gather_weights<network>(std::span<const T>{landed_weights()}, grid_, group_); });
    }

    /// Takes over what all_weights() and running_statistics() of a trainer with the same network gave, on any number of ranks and in any
    /// partition; every rank passes all of it. The number of the step and the state of the optimizer stay as they are. Collective.
    void load_weights(std::span<const T> all, std::span<const T> statistics = {},
                      const std::source_location& where = std::source_location::current()) {
        on_all_ranks("load_weights", where, [&] {
            require_loadable<network>(ranks_, all, statistics);
            change_.meet(
                sums_.awaited(), [&] { sums_.start(); }, [&] { return sums_.progress(); }, [] {});
            change_.begin();
            cut_weights<network>(all, arena_[weights_], grid_);
            std::ranges::copy(statistics, statistics_.running().begin());
            change_.loaded();
            ranks_.end_together();
        });
    }

    /// The running statistics of all layers, one after the other: the same on every rank. None for a network without such layers.
    /// A view of the trainer's memory: the next step changes it.
    [[nodiscard]] std::span<const T> running_statistics() const noexcept { return statistics_.running(); }

    /// A hash of all_weights() and the running statistics: equal recipes give equal hashes on any number of ranks (but see plan::sums).
    /// Collective in a model partition.
    [[nodiscard]] std::uint64_t weights_hash(const std::source_location& where = std::source_location::current()) const {
        return look("weights_hash", where, [&] {
            const auto all = gather_weights<network>(std::span<const T>{landed_weights()}, grid_, group_);
            return with_statistics(core::hash(std::as_bytes(std::span{all})));
        });
    }
    /// A hash of the weights and statistics on this rank, for comparing replicas.
    [[nodiscard]] std::uint64_t local_hash() const { return with_statistics(core::hash(std::as_bytes(landed_weights()))); }

    /// What the weights on this rank are, also after a failure: those after how many steps, and whether they can be used.
    [[nodiscard]] train::weights_state weights_state() const noexcept { return change_.state(); }

    [[nodiscard]] const Plan& recipe() const noexcept { return plan_; }
    [[nodiscard]] const partition::grid& grid() const noexcept { return grid_; }
    [[nodiscard]] const comm::group& ranks() const noexcept { return ranks_; }
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return arena_.bytes(); }
    /// What they are for.
    [[nodiscard]] memory_by_kind memory() const noexcept {
        memory_by_kind out{.weights = (weights_.count + statistics_.running().size()) * sizeof(T),
                           .gradients = averaging_.gradient_numbers() * sizeof(T),
                           .optimizer = averaging_.slot_numbers() * sizeof(T),
                           .activations = run_.memory().bytes,
                           .scratch = run_.memory().largest_scratch(),
                           .messages = averaging_.message_bytes()};
        out.data = arena_.bytes() - out.sum();
        return out;
    }
    /// How gradients and weights go from rank to rank, and why so.
    [[nodiscard]] const std::string& transport() const noexcept { return node_.text(); }
    [[nodiscard]] std::size_t optimizer_numbers() const noexcept { return averaging_.slot_numbers(); }
    [[nodiscard]] std::size_t buckets() const noexcept { return averaging_.bucket_count(); }
    /// How messages are summed: a table of algorithms by bytes of a bucket, and the costs it was chosen by. Empty on one rank and where
    /// gradients go through shared memory.
    [[nodiscard]] std::string all_reduce_algorithm() const { return node_.is_shared() ? "" : rule_.text(); }
    /// What this rank sends in a step of a full minibatch to average gradients and share weights.
    [[nodiscard]] std::size_t averaging_bytes() const noexcept { return averaging_.bytes_per_step(); }
    /// What this rank sends between layers for a full minibatch: 0 without a model partition, in which it is collective.
    [[nodiscard]] std::size_t exchange_bytes() {
        if constexpr (shards > 1) {
            deal full{grid_};
            full.whole(plan_.batch);
            return run_.bytes_for(full);
        }
        return 0;
    }
    [[nodiscard]] train::report report() const {
        auto out = report_;
        out.seconds = averaging_.added_to(report_.seconds);
        return out;
    }

private:
    using clock = std::chrono::steady_clock;

    /// What cannot be made on one rank, for want of memory say, is told to all.
    trainer(comm::group ranks, const Plan& plan, const std::source_location& where, int) try
        : trainer(plan, ranks, comm::watched_call(ranks.notices(), "trainer", where)) {
    } catch (...) {
        tell_all(ranks);
        core::rethrow();
    }
    [[gnu::cold]] trainer(const Plan& plan, const comm::group& ranks, const comm::watched_call&)
        : plan_{with_algorithms(plan)},
          ranks_{ranks},
          grid_{[&] {
              ranks_.check();
              check(plan);
              if (plan.timeout) ranks_.notices().set_timeout(*plan.timeout);
              const auto made = partition::make_grid<partition_type>(ranks_.rank(), ranks_.size(), plan.lanes);
              agree(ranks_, describe_plan(plan_));
              return made;
          }()},
          group_{shards > 1 ? ranks_.split(grid_.replica(), grid_.shard()).named("values") : comm::group{}},
          replicas_{shards > 1 ? ranks_.split(grid_.shard(), grid_.replica()) : ranks_},
          team_{static_cast<int>(plan.threads)},
          capacity_{deal::capacity(plan.batch, grid_, least_rows)},
          deal_{grid_},
          rule_{ranks_, plan.all_reduce, plan.sums, measures<T, network>(plan)},
          bucket_{least_bucket<T>(plan, rule_, grid_)},
          node_{ranks_, plan.all_reduce.empty() ? plan.transport : transport::messages, shared_bytes<T, network>(grid_, bucket_), arena_},
          change_{ranks_, node_.parts(), arena_},
          run_{plan_.model, grid_, group_, capacity_, shards * capacity_, team_, arena_},  // step() may fill every rank of a group
          averaging_{plan, grid_, ranks_, replicas_, bucket_, rule_, team_, arena_, node_.parts(), change_},
          statistics_{grid_, ranks_.named("statistics"), rule_, team_, arena_},
          sums_{grid_, ranks_.named("losses")},
          counts_{grid_, ranks_.named("rows")},
          brought_{capacity_, plan.prefetch, team_, arena_},
          weights_{arena_.template reserve_shared<T>(network::parameters_here)} {
        arena_.allocate();
        run_.bind(arena_, averaging_.thread());
        averaging_.bind(arena_);
        statistics_.bind(arena_);
        brought_.bind(arena_);
        statistics_.initialise(plan.seed, plan.initialise);
        report_.ranks = grid_.ranks;
        report_.threads = plan.threads;
        initialise_weights<network>(arena_[weights_], grid_, plan.seed, plan.initialise);
        require_equal_weights<network>(ranks_, grid_, std::span<const T>{arena_[weights_]}, running_statistics());
        ranks_.end_together();
    }

    /// Where this rank fails, all others are told why and fail too.
    template <class F>
    decltype(auto) on_all_ranks(const char* name, const std::source_location& where, F&& f) const {
        const comm::watched_call here{ranks_.notices(), name, where};
        // After a failure messages of the broken step are still under way, and would be taken for those of the next one.
        // And what a compressor carries over to the next step is that of the broken one.
        const bool stays_failed = ranks_.size() > 1 || decltype(plan_.compressor)::slot_count > 0;
        try {
            if (stays_failed) ranks_.check();
            averaging_.settle();
            return f();
        } catch (...) {
            tell_all(ranks_);
            averaging_.settle_after_failure();
            change_.found(kernels::first_non_finite(std::span<const T>{arena_[weights_]}) == weights_.count);
            rethrow_with(weights_state().text(grid_.rank));
        }
    }
    /// A look at the weights: collective in a model partition, else local and possible after a failure.
    template <class F>
    auto look(const char* name, const std::source_location& where, const F& f) const {
        if constexpr (shards > 1) return on_all_ranks(name, where, f);
        const comm::watched_call here{ranks_.notices(), name, where};
        return f();
    }

    template <class Dataset, class Until, class... Observers>
    void fit_checked(const Dataset& set, Until until, Observers&... observers) {
        require_samples(set, "fit");
        require_equal(ranks_, set.size(), "samples to fit");
        agree_on(ranks_, set);
        require_same_samples<T>(ranks_, set);
        require_equal(ranks_, until.count, std::is_same_v<Until, epochs> ? "epochs to fit" : "steps to fit",
                      "call fit() with the same number on every rank");
        ranks_.notices().passed();
        const recording<averaging_type> recorded{averaging_, recorder_of(observers...)};
        require_different_outputs(ranks_, observers...);
        (tell_begin(observers, ranks_), ...);
        const std::size_t n = set.size(), per_epoch = (n - 1) / plan_.batch + 1;
        if (order_.size() != n) {
            core::with_memory("the order of the samples", n * sizeof(order_[0]), "fit fewer samples, or use a machine with more memory",
                              [&] { order_.assign(n, 0); });
            position_ = 0;
            plan_.sampler.order(n, epoch_, plan_.seed, order_);
            require_same_order(ranks_, order_);
        }
        const std::size_t begun = position_ / plan_.batch;
        std::uint64_t left = steps_until(until, per_epoch, begun);
        require_last_minibatch<net>(n, plan_.batch, begun, left);
        if (position_ > 0) plan_.sampler.order(n, epoch_, plan_.seed, order_);
        const auto load = [&](std::uint64_t epoch, std::size_t position, bool ahead) {
            if (position == 0) plan_.sampler.order(n, epoch, plan_.seed, order_);
            const auto own = deal::own_rows(std::min(plan_.batch, n - position), grid_, least_rows);
            const std::span<const std::uint64_t> rows = std::span{order_}.subspan(position + own.first, own.size());
            return brought_.template read<Dataset>(set, rows, {plan_.seed, epoch}, ahead);
        };
        read_ahead minibatches{load, plan_.prefetch};
        const auto start = clock::now();
        std::size_t seen = 0;
        std::uint64_t done = 0;
        epoch_event epoch;
        epoch.epoch = epoch_;
        std::size_t epoch_samples = 0;
        auto epoch_start = start;
        double aside = 0;  // seconds of observers that work on all ranks
        while (left > 0) {
            auto data_start = clock::now();
            averaging_.begin_step(report_.steps + 1);
            deal_.whole(std::min(plan_.batch, n - position_), least_rows);
            const auto [x, y, count] = minibatches.take(epoch_, position_, brought_);
            const std::size_t next = position_ + deal_.rows();
            if (left > 1) minibatches.begin(next == n ? epoch_ + 1 : epoch_, next == n ? 0 : next);
            report_.seconds.data += lap(data_start);
            auto event = run_step(x, y);
            position_ = position_ + event.samples == n ? 0 : position_ + event.samples;
            seen += event.samples;
            event.seconds = seconds_since(start) - aside;
            event.samples_per_second = static_cast<double>(seen) / event.seconds;
            event.steps_done = ++done;
            event.steps_left = --left;
            if ((sees_weights<std::remove_const_t<Observers>, trainer> || ...)) averaging_.settle();
            event.spent = spent_since();
            (tell_step(observers, grid_.rank, *this, event), ...);
            epoch.loss += event.loss * static_cast<double>(event.samples);
            epoch_samples += event.samples;
            if (position_ != 0 && left > 0) continue;
            epoch.loss /= static_cast<double>(epoch_samples);
            epoch.seconds = seconds_since(epoch_start);
            averaging_.settle();
            const auto pause = clock::now();
            (tell_epoch(observers, grid_.rank, *this, epoch), ...);
            aside += seconds_since(pause);
            report_.epochs.push_back(epoch);
            if (position_ == 0) ++epoch_;
            epoch = {};
            epoch.epoch = epoch_;
            epoch_samples = 0;
            epoch_start = clock::now();
        }
        (tell_end(observers, grid_.rank, *this, report()), ...);
        ranks_.end_together();  // observers of all ranks have had the chance to fail
    }

    /// The network's forward walk, without training.
    [[nodiscard]] inference<T, network, label, Plan> forward_alone() noexcept {
        return {.plan = plan_,
                .ranks = ranks_,
                .grid = grid_,
                .capacity = capacity_,
                .weights = arena_[weights_].data(),
                .statistics = statistics_.place(),
                .key = key(layer_api::mode::inference),
                .run = run_,
                .brought = brought_,
                .rows = deal_,
                .counts = counts_,
                .sums = sums_,
                .team = team_};
    }

    [[nodiscard]] std::uint64_t with_statistics(std::uint64_t hash) const noexcept {
        return network::statistics == 0 ? hash : core::hash(std::as_bytes(running_statistics()), hash);
    }

    [[nodiscard]] step_key key(layer_api::mode mode) const noexcept { return {plan_.seed, report_.steps, mode}; }

    /// Forward, loss, backward, average, update, for the rows of the deal.
    step_event run_step(const T* x, const label_element* y) {
        const std::uint64_t step = report_.steps;
        const auto turns = averaging_.step_in_turns();
        const double exchanged = run_.exchange_seconds(), waited = averaging_.exposed_seconds();
        averaging_.note(activity::data);
        auto watch = clock::now();
        const std::span<T> weights = arena_[weights_];
        const auto out = run_.forward(weights.data(), x, deal_, key(layer_api::mode::training), statistics_.place(), averaging_.in_front());
        averaging_.forward_done();
        statistics_.start();
        const auto dy = run_.output_gradient(deal_);
        sums_.clear();
        parallel::for_each(team_, deal_.own().count(), [&](std::size_t lane) noexcept(loss_is_quiet<T, decltype(plan_.loss), output>) {
            const auto rows = deal_.own().blocks()[lane];
            const auto [part, target] = of_rows<label>(out, y, rows);
            sums_(lane, 0) =
                plan_.loss(part, target, dy.part(rows.first, rows.size()), static_cast<T>(1.0 / static_cast<double>(deal_.rows())));
        });
        const double rate = static_cast<double>(plan_.schedule(step));
        sums_.fill(2, rate);
        averaging_.note(activity::loss);
        const double in_forward = run_.exchange_seconds() - exchanged;
        report_.seconds.forward += lap(watch) - in_forward - (averaging_.exposed_seconds() - waited);
        run_.backward(
            weights.data(), deal_, key(layer_api::mode::training), [&](std::size_t layer) { return averaging_.place(layer); },
            [&](std::size_t layer) { averaging_.done(layer, step, statistics_); });
        const double in_both = run_.exchange_seconds() - exchanged;
        report_.seconds.backward += lap(watch) - (in_both - in_forward);
        report_.seconds.communication_exposed += in_both;
        // Who has all losses knows that no rank can fail any more in this step: only now may weights change.
        const double loss = averaging_.meet(sums_, step) / static_cast<double>(deal_.rows());
        if (const std::size_t lane = sums_.first_other(2); lane < grid_.lanes || !(std::isfinite(rate) && rate >= 0))
            refuse_rate(change_, sums_, grid_, lane, step + 1);
        if (!std::isfinite(loss)) refuse_step(change_, core::text("the loss is ", loss), step + 1);
        // Its messages go before the weights, or they would wait for these.
        if constexpr (network::statistics > 0) {
            watch = clock::now();
            if (!statistics_.finish(deal_.rows())) refuse_step(change_, "a mean of what layers observe is not finite", step + 1);
            change_.begin();
            statistics_.absorb(plan_.model);
            report_.seconds.communication_exposed += lap(watch);
        }
        const bool finite = averaging_.finish(weights, rate, step);
        ++report_.steps;
        ranks_.notices().passed();
        if (!finite) refuse_weights<network>(std::span<const T>{landed_weights()}, report_.steps);
        report_.samples += deal_.rows();
        report_.bytes_sent += averaging_.bytes_per_step() + run_.exchanged_bytes() + sums_.bytes_sent() + statistics_.bytes_per_step();
        return {.step = report_.steps, .epoch = epoch_, .samples = deal_.rows(), .loss = loss, .rate = rate};
    }

    /// Weights are complete wherever somebody looks at them.
    [[nodiscard]] std::span<T> landed_weights() const {
        averaging_.settle();
        return arena_[weights_];
    }

    /// Since the last call.
    seconds_spent spent_since() noexcept {
        const auto now = averaging_.added_to(report_.seconds);
        return now - std::exchange(told_, now);
    }

    Plan plan_;
    comm::group ranks_;  // all
    partition::grid grid_;
    comm::group group_;     // the model group
    comm::group replicas_;  // the ranks with the same shard
    parallel::team team_;
    std::size_t capacity_;
    tensor::arena arena_;
    deal deal_;
    reduce::sum_rule rule_;
    std::size_t bucket_;  // parameters, at least
    reduce::memory_for<T, decltype(std::declval<Plan&>().compressor)> node_;
    mutable commit change_;  // a failure while somebody looks changes what is known of the weights
    run_type run_;
    mutable averaging_type averaging_;  // a look at the weights may have to wait for them
    statistics<T, network> statistics_;
    step_sums sums_;
    row_counts counts_;
    inputs<T, input, label> brought_;
    tensor::slice<T> weights_;
    std::vector<std::uint64_t> order_;
    std::uint64_t epoch_ = 0;
    std::size_t position_ = 0;
    train::report report_;
    seconds_spent told_;
};

template <class Ranks, class P>
trainer(const Ranks&, const P&) -> trainer<sound_plan<P>>;

}  // namespace lockstep::train

namespace lockstep {
using train::trainer;
}  // namespace lockstep
