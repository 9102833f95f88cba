// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Each worker trains weights of its own, and every few steps something is made of their mean: local SGD and what
// derives from it.
// Tested by tests/equivalence/outer_steps.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/sync/difference_sum.hpp"
#include "lockstep/sync/owner_updates.hpp"
#include "lockstep/sync/whole_state.hpp"
#include "lockstep/sync/worker_mean.hpp"

namespace lockstep::sync {

/// What becomes of the optimizer's slots where weights are averaged: each worker keeps its own, or they are averaged,
/// too.
enum class momenta : std::uint8_t { keep, average };

/// The words of `local_sgd`, for strategies to derive from. A worker is owner_updates among the ranks that share it: a
/// rank alone, or several that add gradients exactly. What all workers add goes through one array: the values of each
/// worker of this rank side by side, then their sum.
///
///     weights   worker 0 | worker 1    (this rank)                 scratch   [0]       | [1]
///     average:  copy each into scratch, add over the tree of       add       [0] + [1] |  .       in this rank,
///     workers, divide, copy the mean back into each                          mean      |  .       then over all ranks
template <class Types>
class local_updates {
    using T = typename Types::value_type;
    using network = typename Types::network;
    using optimizer = typename Types::optimizer;
    static constexpr bool compresses = !std::is_same_v<typename Types::compressor, compress::none>;
    using exact_types = exactly<Types>;  // of local steps
    static constexpr std::size_t n = network::parameters_here;

    /// The weights of one worker, but for their memory.
    class worker_updates : public owner_updates<exact_types> {
        using base = owner_updates<exact_types>;

    public:
        using base::agree_on_loss;
        using base::base;
        using base::owned_;
        using base::queue_;

        bool updates = true;  // in this step
    };

public:
    static constexpr bool has_worker_weights = true, exchanges_by_messages = compresses;
    static constexpr std::size_t gradient_sets = 1;

    template <class Plan>
    [[gnu::cold]] explicit local_updates(const setup<Plan>& from)
        : all_{from.all},
          change_{&from.change},
          period_{from.plan.sync.period},
          first_{from.plan.sync.start},
          start_{from.grid.workers > 1 ? first_ : 0},  // the step of one worker is the synchronous one
          averages_momenta_{from.plan.sync.momentum == momenta::average},
          overlaps_{from.plan.overlap},
          team_{from.team},
          grid_{from.grid},
          part_{grid_.part_of(grid_.rank)},
          inside_{.rank = part_.index,
                  .ranks = part_.count,
                  .lanes = grid_.worker_lanes(),
                  .workers = 1,
                  .recipe_lanes = parallel::split(grid_.recipe_lanes, grid_.workers, part_.workers.first).size()},
          samples_(grid_.workers),
          sharing_{grid_.ranks > grid_.workers ? from.all.split(part_.workers.first, grid_.rank).named("worker")
                                               : comm::group{}},
          sum_{from, n} {
        if (period_ == 0)
            core::fail(core::text("sync::", from.plan.sync.name, " averages weights every 0 steps"),
                       "set period to at least 1, or leave sync out for synchronous steps");
        if (from.plan.progress_thread)
            core::fail(core::text("the plan asks for a progress thread with sync::", from.plan.sync.name,
                                  ", most steps of which send nothing between layers"),
                       "leave progress_thread out");
        const comm::group no_others;
        const auto make = [&](const auto& plan) {
            const setup alone{plan,      inside_,   sharing_,   sharing_, no_others, from.least_bucket,
                              from.rule, from.team, from.arena, nullptr,  nullptr,   from.change};
            for (std::size_t set = 0; set < part_.workers.size(); ++set) workers_.emplace_back(alone);
        };
        if constexpr (compresses)
            make(exact_plan<Plan>{from.plan});
        else
            make(from.plan);
        for (std::size_t bucket = 0; bucket < front().queue_.size(); ++bucket)
            is_kept_here_.push_back(keeps_slots(bucket));
        differences_.make(from, sharing_, times());
    }

    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        for (worker_updates& one : workers_) one.bind(arena);
        sum_.bind(arena);
        differences_.with([&](auto& of) { of.bind(arena); });
    }

    void begin(std::uint64_t step) { front().begin(step); }
    /// A local gradient is a mean over the rows of its worker. One without rows leaves its weights and slots alone; its
    /// optimizer counts steps as all others do.
    [[nodiscard]] std::size_t begin_walk(std::size_t set, std::span<const std::size_t> lengths,
                                         std::uint64_t step) noexcept {
        set_ = set;
        lengths_ = lengths;
        const std::size_t rows = rows_of(part_.workers.first + set);
        workers_[set].updates = step < start_ || rows > 0;
        return std::max<std::size_t>(1, step < start_ ? sum_of(lengths) : rows);
    }
    /// Only the first worker may share its weights with other ranks, and wait for them.
    [[nodiscard]] layer_hook weights_needed() noexcept {
        if (set_ == 0) return front().weights_needed();
        return {this, [](void* of, std::size_t layer) {
                    if (layer > 0) static_cast<local_updates*>(of)->times().note(report::activity::forward, layer - 1);
                }};
    }
    void forward_done() { front().forward_done(); }
    [[nodiscard]] gradient_place<T> gradient_location(std::size_t layer) const noexcept {
        return workers_[set_].gradient_location(layer);
    }
    template <class Others>
    void gradient_ready(std::size_t layer, std::uint64_t step, const Others& others) {
        times().note(report::activity::backward, layer);
        worker_updates& mine = workers_[set_];
        if (overlaps_ && adds_alone(mine, step)) mine.queue_.ready(layer, step);
        mine.queue_.beside_backward(others);
    }
    [[nodiscard]] double reduce_loss(step_sums& losses, std::uint64_t step) {
        for (worker_updates& one : workers_)
            if (!overlaps_ && adds_alone(one, step)) one.queue_.start_all(step);
        return front().agree_on_loss(losses, [&] { front().queue_.poll(); });
    }

    [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
        return commit_means(weights, rate, step, from_the_mean{});
    }

    /// Local.
    void complete() {
        for (worker_updates& one : workers_) one.complete();
    }
    [[gnu::cold]] void abandon() noexcept {
        for (worker_updates& one : workers_) one.abandon();
        differences_.with([](auto& of) { of.abandon(); });
    }
    /// The mean over all workers, whose own weights stay as they are; a view that the next step ends. Collective,
    /// unless nothing has changed since the last look, or all workers have the same weights.
    [[nodiscard]] std::span<T> mean(std::span<T> weights) {
        complete();
        if (agree_ != differ || !sum_) return weights_of(weights, 0);
        if (!is_mean_here_) {
            put_weights(weights);
            sum_.add(workers(), times());
            is_mean_here_ = true;
        }
        return scratch().first(n);
    }
    /// The first set is new: it becomes that of all workers. Slots stay as they are.
    [[gnu::cold]] void spread(std::span<T> weights) noexcept {
        for (std::size_t set = 1; set < workers_.size(); ++set) copy(weights_of(weights, 0), weights_of(weights, set));
        if (agree_ == differ) agree_ = optimizer::slot_count == 0 ? all_agree : weights_agree;
        is_mean_here_ = false;
        std::ranges::fill(samples_, 0);
    }

    /// What other ranks count, all hear of.
    [[gnu::cold]] void restored() {
        is_mean_here_ = false;
        const std::vector<std::uint64_t> own{samples_};
        for (std::size_t of = 0; of < own.size(); ++of) {
            const bool is_mine = speaks() && part_.workers.first <= of && of < part_.workers.last;
            samples_[of] = 0;
            for (const std::uint64_t one : all_.gather_all(is_mine ? own[of] : 0)) samples_[of] += one;
        }
    }

    /// Of set `set` of this rank; whether this rank speaks of those that share it.
    [[nodiscard]] std::size_t worker_of(std::size_t set) const noexcept { return part_.workers.first + set; }
    [[nodiscard]] bool speaks() const noexcept { return part_.index == 0; }
    /// Slots of each worker, and its samples since the last mean; the trainer shows their weights.
    template <class Visitor>
    void visit_state(Visitor&& visit) {
        for (std::size_t set = 0; set < workers_.size(); ++set)
            workers_[set].visit_state([&](auto part) {
                part.worker = worker_of(set);
                visit(part);
            });
        differences_.with([&](auto& of) { of.visit_state(visit); });
        visit(tensor::state_part<std::uint64_t>{
            .role = "workers agree", .numbers = std::span{&agree_, 1}, .speaks = grid_.rank == 0});
        for (std::size_t set = 0; set < workers_.size(); ++set)
            visit(tensor::state_part<std::uint64_t>{.role = "samples",
                                                    .worker = worker_of(set),
                                                    .numbers = std::span{&samples_[worker_of(set)], 1},
                                                    .speaks = speaks()});
    }

    [[nodiscard]] comm::progress_thread* thread() noexcept { return nullptr; }
    [[nodiscard]] auto step_in_turns() noexcept { return front().step_in_turns(); }
    [[nodiscard]] step_times& times() noexcept { return front().times(); }
    [[nodiscard]] const step_times& times() const noexcept { return workers_.front().times(); }
    [[gnu::cold]] void record(report::recorder* to) {
        front().record(to);
        if (to != nullptr) differences_.with([&](auto& of) { of.record(*to); });
    }

    [[nodiscard]] std::uint64_t synchronous_steps() const noexcept { return start_; }
    /// The mean over the local steps of a period.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept { return bytes_inside() + bytes_of_means() / period_; }
    [[nodiscard]] std::size_t bytes_of(std::uint64_t step) const noexcept {
        return bytes_inside() + (step < start_ ? sum_.bytes() : 0) + (averages_after(step) ? bytes_of_means() : 0);
    }
    [[nodiscard]] std::size_t slot_numbers() const noexcept {
        return added(&worker_updates::slot_numbers) + (differences_ ? n : 0);
    }
    [[nodiscard]] std::size_t gradient_numbers() const noexcept {
        return added(&worker_updates::gradient_numbers) +
               differences_.number([](auto& of) { return of.gradient_numbers(); });
    }
    [[nodiscard]] std::size_t message_bytes() const noexcept {
        return sum_.message_bytes() + added(&worker_updates::message_bytes) +
               differences_.number([](auto& of) { return of.message_bytes(); });
    }
    [[nodiscard]] std::size_t bucket_count() const noexcept { return workers_.front().bucket_count(); }
    /// Memory in which all ranks add.
    [[nodiscard, gnu::cold]] static std::size_t shared_bytes(const partition::grid& on) {
        std::size_t most = 1;
        for (std::size_t rank = 0; rank < on.ranks; ++rank)
            most = std::max(most, on.nodes_of(on.lanes_of(rank)).size());
        return core::checked_sum(
            "bytes of shared weights", commit::shared_bytes + sizeof(node::shared_signal),
            tensor::arena::footprint(core::checked_product("bytes of shared weights", most, n, sizeof(T))));
    }

protected:
    struct from_the_mean {};  ///< all workers go on from it

    /// A commit. In a step that ends a period `after(mean)` may change the mean of all workers, on every rank alike;
    /// then take(mean, weights) makes the weights of each worker of this rank, which by default are the mean. Both are
    /// noexcept, see `parameters_here` numbers, and no mean that is not finite. One worker is its own mean, in place.
    template <class After, class Take = from_the_mean>
    [[nodiscard]] bool commit_means(std::span<T> weights, double rate, std::uint64_t step, const After& after,
                                    const Take& take = {}) {
        constexpr bool is_plain = std::is_same_v<After, from_the_mean>;
        return commit_and(weights, rate, step, averages_after(step) || (!is_plain && ends_period(step)),
                          [&] { return average(weights, step, after, take); });
    }
    /// A commit. Where `exchanges`, exchange() then changes the weights of workers once they are whole: collective,
    /// after the agreement of a step. It returns whether all numbers of this rank are finite.
    template <class Exchange>
    [[nodiscard]] bool commit_and(std::span<T> weights, double rate, std::uint64_t step, bool exchanges,
                                  const Exchange& exchange) {
        is_mean_here_ = false;
        if (step >= start_ && agree_ != differ)
            differences_.with([&](auto& of) { of.begin_at(weights_of(weights, 0)); });
        if (step < start_) add_gradients(step);
        // Before the exchange no weights are those after the step, whatever arrives meanwhile.
        if (exchanges) change_->hold();
        bool finite = true;
        for (std::size_t set = 0; set < workers_.size(); ++set) {
            worker_updates& one = workers_[set];
            if (set > 0) times().begin_update();
            if (!one.updates)
                one.queue_.completes(step + 1);
            else if (!one.commit(weights_of(weights, set), rate, step))
                finite = false;
            if (set == 0) continue;
            one.complete();
            times().end_update(0);
        }
        // A synchronous step keeps them equal where slots are, too: after a resume with a later start they need not be.
        if (grid_.workers > 1 && (step >= start_ || agree_ == weights_agree)) agree_ = differ;
        for (std::size_t one = 0; agree_ == differ && one < samples_.size(); ++one) samples_[one] += rows_of(one);
        if (!exchanges) return finite;
        complete();
        change_->begin();
        finite = exchange() && finite;
        std::ranges::fill(samples_, 0);
        change_->release(step + 1);
        return finite;
    }
    [[nodiscard]] bool ends_period(std::uint64_t step) const noexcept {
        return step >= first_ && (step + 1 - first_) % period_ == 0;
    }

    /// All workers have the same weights.
    [[nodiscard]] bool are_alike() const noexcept { return agree_ != differ; }
    [[nodiscard]] bool is_finite(std::span<const T> numbers) const noexcept {
        return kernels::first_non_finite(numbers, team_) == numbers.size();
    }
    /// What a step sends among the ranks that share a worker.
    [[nodiscard]] std::size_t bytes_inside() const noexcept { return workers_.front().bytes_per_step(); }
    /// Shows a visitor an array of all parameters that every rank keeps alike.
    template <class Visitor>
    void visit_owned(Visitor&& visit, std::string_view role, std::size_t slot, std::span<T> all) const {
        visit_whole<network>(visit, role, slot, all, grid_.rank == 0);
    }

    const tensor::arena* arena_ = nullptr;  ///< all memory of a step

private:
    [[nodiscard]] worker_updates& front() noexcept { return workers_.front(); }
    [[nodiscard]] T workers() const noexcept { return static_cast<T>(grid_.workers); }
    [[nodiscard]] std::span<T> scratch() const noexcept { return sum_.arrays(); }
    [[nodiscard]] static std::span<T> weights_of(std::span<T> all, std::size_t set) noexcept {
        return all.subspan(set * n, n);
    }
    [[nodiscard]] static std::size_t sum_of(std::span<const std::size_t> lengths) noexcept {
        return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
    }
    [[nodiscard]] std::size_t added(std::size_t (owner_updates<exact_types>::*of)() const noexcept) const noexcept {
        std::size_t sum = 0;
        for (const worker_updates& one : workers_) sum += (one.*of)();
        return sum;
    }
    /// Of weights, and of every slot where these are averaged.
    [[nodiscard]] std::size_t bytes_of_means() const noexcept {
        const std::size_t slots = averages_momenta_ ? std::size_t{optimizer::slot_count} : 0;
        const std::size_t compressed = differences_.number([](auto& of) { return of.bytes(); });
        return (differences_ ? compressed : sum_.bytes()) + slots * sum_.bytes();
    }
    [[nodiscard]] bool averages_after(std::uint64_t step) const noexcept {
        return grid_.workers > 1 && ends_period(step);
    }
    /// Its gradient is a sum over its own ranks alone.
    [[nodiscard]] bool adds_alone(const worker_updates& one, std::uint64_t step) const noexcept {
        return one.updates && step >= start_;
    }

    /// Of the ranks that share a worker, whether this one's slots of a bucket count: each has its strip, or all have
    /// all of them and the first counts. Collective among these ranks.
    [[nodiscard, gnu::cold]] bool keeps_slots(std::size_t bucket) {
        std::size_t all = 0;
        for (const std::size_t size : sharing_.gather_all(front().queue_[bucket].reducer.owned().size())) all += size;
        return part_.index == 0 || all == front().queue_[bucket].range.count;
    }
    void copy(std::span<const T> from, std::span<T> to) const noexcept { parallel::copy(team_, from, to); }
    /// x + -0.0 is x in every bit, also for x = -0.0.
    static void leave_out(std::span<T> values) noexcept { std::ranges::fill(values, T{-0.0}); }

    /// What the lanes of a worker have in this minibatch.
    [[nodiscard]] std::size_t rows_of(std::size_t of) const noexcept {
        return sum_of(lengths_.subspan(of * grid_.worker_lanes(), grid_.worker_lanes()));
    }
    /// By its samples since the last mean a worker counts more or less than 1.
    [[nodiscard]] double weight_of(std::size_t set) const noexcept {
        std::uint64_t all = 0;
        for (const std::uint64_t one : samples_) all += one;
        if (all == 0) return 1;  // right after a mean from which workers differ
        return static_cast<double>(samples_[worker_of(set)]) * static_cast<double>(grid_.workers) /
               static_cast<double>(all);
    }
    void weigh() const noexcept {
        for (std::size_t set = 0; set < workers_.size(); ++set) {
            const auto by = static_cast<T>(weight_of(set));
            if (by == T{1}) continue;
            const std::span<T> here = scratch().subspan(set * n, n);
            parallel::for_blocks(team_, n, 4096, [&](parallel::block part) noexcept {
                for (std::size_t i = part.first; i < part.last; ++i) here[i] *= by;
            });
        }
    }

    /// Scratch gets the weights of each worker, from one of the ranks that share it.
    void put_weights(std::span<const T> weights) const noexcept {
        if (part_.index == 0) {
            copy(weights, scratch());
            weigh();
        }
        if (part_.count > 1) leave_out(part_.index == 0 ? scratch().subspan(n) : scratch());
    }
    /// The same for slot `slot`.
    void put_slots(std::size_t slot) const noexcept {
        if (part_.count > 1) leave_out(scratch());
        each_slot(slot, [&](std::span<T> here, std::size_t at, std::size_t, bool is_kept) {
            if (is_kept) copy(here, scratch().subspan(at, here.size()));
        });
        weigh();
    }
    /// f(numbers, where the same of its worker lie in scratch, where they lie in the mean, whether they count) for each
    /// strip on this rank.
    template <class F>
    void each_slot(std::size_t slot, const F& f) const noexcept {
        for (std::size_t set = 0; set < workers_.size(); ++set)
            for (std::size_t bucket = 0; bucket < workers_[set].queue_.size(); ++bucket) {
                const auto& entry = workers_[set].queue_[bucket];
                const parallel::block owned = entry.reducer.owned();
                const std::size_t first = entry.range.first + owned.first;
                f((*arena_)[workers_[set].owned_[bucket].slots].subspan(slot * owned.size(), owned.size()),
                  set * n + first, first, is_kept_here_[bucket]);
            }
    }

    /// The mean of all workers, exact or through the compressor, in a memory that may be changed.
    [[nodiscard]] std::span<T> exchange(std::span<T> weights, std::uint64_t step) {
        if (!sum_) return weights_of(weights, 0);
        std::span<T> mean = scratch().first(n);
        differences_.with([&](auto& of) {
            mean = of.add(weights, step, [this](std::size_t set) {
                return static_cast<T>(weight_of(set) / static_cast<double>(grid_.workers));
            });
        });
        if (differences_) return mean;
        put_weights(weights);
        sum_.add(workers(), times());
        return mean;
    }
    /// Weights are those that `after` and `take` make of the mean. False: a mean is not finite.
    template <class After, class Take>
    [[nodiscard]] bool average(std::span<T> weights, std::uint64_t step, const After& after, const Take& take) {
        const std::span<T> mean = exchange(weights, step);
        bool finite = is_finite(mean);
        if constexpr (!std::is_same_v<After, from_the_mean>)
            if (finite) after(mean), finite = is_finite(mean);
        constexpr bool agree = std::is_same_v<Take, from_the_mean>;
        for (std::size_t set = 0; (finite || agree) && set < workers_.size(); ++set)
            if constexpr (!agree)
                take(std::span<const T>{mean}, weights_of(weights, set));
            else if (sum_)
                copy(mean, weights_of(weights, set));
        if (sum_ && agree) agree_ = averages_momenta_ || optimizer::slot_count == 0 ? all_agree : weights_agree;
        for (std::size_t slot = 0; sum_ && averages_momenta_ && slot < optimizer::slot_count; ++slot) {
            put_slots(slot);
            sum_.add(workers(), times());
            finite = is_finite(scratch().first(n)) && finite;
            each_slot(slot, [&](std::span<T> here, std::size_t, std::size_t first, bool) {
                copy(scratch().subspan(first, here.size()), here);
            });
        }
        return finite;
    }
    /// A synchronous step: the gradient of each worker becomes that of all, over the tree of workers; then each goes on
    /// as if it were its own.
    void add_gradients(std::uint64_t step) {
        const auto each = [&](const auto& f) {
            for (std::size_t set = 0; set < workers_.size(); ++set)
                for (std::size_t bucket = 0; bucket < workers_[set].queue_.size(); ++bucket) {
                    const auto& entry = workers_[set].queue_[bucket];
                    const std::size_t count = entry.range.count;
                    const std::span<T> nodes = (*arena_)[entry.gradient];
                    for (std::size_t node = 0; node * count < nodes.size(); ++node)
                        f(nodes.subspan(node * count, count), set + node, entry.range.first,
                          node == 0 && part_.index == 0);
                }
        };
        each([&](std::span<T> node, std::size_t array, std::size_t first, bool) {
            copy(node, scratch().subspan(array * n + first, node.size()));
        });
        sum_.add(T{1}, times());
        each([&](std::span<T> node, std::size_t, std::size_t first, bool counts) {
            counts ? copy(scratch().subspan(first, node.size()), node) : leave_out(node);
        });
        for (worker_updates& one : workers_) one.queue_.start_all(step);
    }

    comm::group all_;
    sync::commit* change_;
    std::uint64_t period_, first_, start_;
    bool averages_momenta_, overlaps_;
    parallel::team team_;
    partition::grid grid_;
    partition::worker_part part_;
    partition::grid inside_;              // the ranks that share a worker
    std::vector<std::uint64_t> samples_;  // of all workers since the last mean
    comm::group sharing_;
    std::deque<worker_updates> workers_;    // which stay where they are
    std::span<const std::size_t> lengths_;  // rows of all lanes in this step
    std::vector<bool> is_kept_here_;
    worker_mean<T> sum_;              // of several workers
    differences<Types> differences_;  // with a compressor
    std::size_t set_ = 0;  // of the walk
    static constexpr std::uint64_t differ = 0, weights_agree = 1, all_agree = 2;
    std::uint64_t agree_ = all_agree;  // all workers
    bool is_mean_here_ = false;        // in scratch
};

}  // namespace lockstep::sync
