// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The buckets of a step and how far each of them is: what is started, moved on and waited for, by this thread or a
// progress thread.
// Tested by tests/equivalence/same_bits.cpp.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/comm/progress_thread.hpp"
#include "lockstep/comm/send_order.hpp"
#include "lockstep/core/owned_list.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/sync/buckets.hpp"
#include "lockstep/sync/commit.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

/// A bucket that is to be started by the progress thread.
struct submitted_bucket {
    std::size_t bucket = 0;
    std::uint64_t step = 0;
};

/// Gradients of replicated layers are added over all ranks, those of a shard over the ranks with the same shard. Sums
/// go before weights, and weights in the order in which forward needs them, also where several are under way. With a
/// progress thread, layers are computed while it has the turn (see comm/progress_thread.hpp): what backward finishes is
/// submitted to it, forward asks it for the turn where weights are missing. Everything else has the turn itself.
/// Memory: one gradient for each node of the rank's lanes, and that of the reducers.
template <class Types>
class bucket_queue {
    using T = typename Types::value_type;
    using network = typename Types::network;
    using method = typename Types::method;

public:
    enum class stage : unsigned char { idle, summing, summed, updated, sharing };

    struct entry {
        template <class Make>
        [[gnu::cold]] entry(const bucket_range& of, const Make& make) : range{of}, reducer(make()) {}

        bucket_range range;
        typename method::reducer reducer;
        tensor::slice<T> gradient;
        stage state = stage::idle;
    };

    template <class Plan>
    [[gnu::cold]] bucket_queue(const setup<Plan>& from, step_times& times)
        : all_{from.all}, change_{&from.change}, times_{&times}, first_{times.buckets()}, layer_bucket_(network::size) {
        const bucket_groups groups = make_bucket_groups(from.grid, from.all, from.replicas, from.sharing);
        if constexpr (method::has_workers) require_series(tensor_count<network>(), from.grid);
        const std::size_t before = from.arena.bytes();
        const auto by_factors = Types::factors::template choose<Types>(from, groups);
        const auto ranges = make_buckets<network>(from.plan.compressor, from.least_bucket, by_factors,
                                                  {from.layers.first, std::min(from.layers.last, network::size)});
        for (const auto& range : ranges) add(from, range, ranges, groups);
        for (std::size_t bucket = 0; bucket < size(); ++bucket) needed_.push_back(bucket);
        core::sort(needed_, [&](std::size_t a, std::size_t b) {
            return buckets_[a].range.lowest_layer < buckets_[b].range.lowest_layer;
        });
        message_bytes_ = from.arena.bytes() - before - gradient_numbers() * sizeof(T);
        if (from.plan.progress_thread && from.all.size() > 1) {
            submitted_.resize(size());
            times_->expect_arrivals();
            thread_ = std::make_unique<comm::progress_thread>(
                [](void* self) { return static_cast<bucket_queue*>(self)->pass(); }, this);
        }
        // Last: a constructor that throws has no destructor to take it back.
        all_.aborts().add_beside(this, [](void* self) { static_cast<bucket_queue*>(self)->poll_in_gather(); });
    }
    [[gnu::cold]] ~bucket_queue() { all_.aborts().remove_beside(this); }
    bucket_queue(const bucket_queue&) = delete;  // others know where it is
    bucket_queue& operator=(const bucket_queue&) = delete;

    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        for (std::size_t bucket = 0; bucket < size(); ++bucket) buckets_[bucket].reducer.bind(arena);
    }

    [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
    /// Number of its first bucket among those of all queues.
    [[nodiscard]] std::size_t first() const noexcept { return first_; }
    [[nodiscard]] entry& operator[](std::size_t bucket) noexcept { return buckets_[bucket]; }
    [[nodiscard]] const entry& operator[](std::size_t bucket) const noexcept { return buckets_[bucket]; }
    /// Buckets in the order in which the next forward needs them.
    [[nodiscard]] std::span<const std::size_t> needed() const noexcept { return needed_; }
    [[nodiscard]] std::size_t bucket_of_layer(std::size_t layer) const noexcept { return layer_bucket_[layer]; }
    /// Null where there is none.
    [[nodiscard]] comm::progress_thread* thread() noexcept { return thread_.get(); }

    [[nodiscard]] gradient_place<T> gradient_location(std::size_t layer) const noexcept {
        if (network::facts[layer].parameters_here == 0) return {};
        const entry& in = buckets_[layer_bucket_[layer]];
        if constexpr (Types::factors::are_used)
            if (in.range.by_factors) return {.factors = in.reducer.own_factors((*arena_)[in.gradient]).data()};
        return {(*arena_)[in.gradient].data() + (network::offset(layer) - in.range.first), in.range.count};
    }

    /// Once its sum is there and finished: the sum of what this rank owns, if the plan measures norms.
    [[nodiscard]] std::span<const T> sum_of(std::size_t bucket) const noexcept {
        const entry& one = buckets_[bucket];
        return std::span<const T>{(*arena_)[one.gradient]}.first(one.range.count);
    }

    /// The gradient of a layer is there: begins the sums of what is complete, here or on the thread.
    void ready(std::size_t layer, std::uint64_t step) {
        for (std::size_t bucket = 0; bucket < size(); ++bucket)
            if (buckets_[bucket].range.lowest_layer == layer) thread_ ? submit(bucket, step) : start(bucket, step);
    }
    void start_all(std::uint64_t step) {
        for (std::size_t bucket = 0; bucket < size(); ++bucket) start(bucket, step);
    }
    [[gnu::noinline]] void start(std::size_t bucket, std::uint64_t step) {
        entry& one = buckets_[bucket];
        times_->started(first_ + bucket, step_times::direction::sum);
        one.reducer.start((*arena_)[one.gradient], step);
        one.state = stage::summing;
        ++under_way_;
    }
    /// Brings the new weights of a bucket to all ranks.
    void share(std::size_t bucket, std::span<T> weights) {
        entry& one = buckets_[bucket];
        times_->started(first_ + bucket, step_times::direction::share);
        one.reducer.share(weights.subspan(one.range.first, one.range.count));
        one.state = stage::sharing;
        ++under_way_;
    }
    /// As soon as nothing is under way any more, the weights are those after so many steps.
    void completes(std::uint64_t steps) noexcept {
        updated_ = steps;
        if (under_way_ == 0) change_->end(std::exchange(updated_, 0));
    }
    [[nodiscard]] bool is_any(stage state) const noexcept {
        for (std::size_t bucket = 0; bucket < size(); ++bucket)
            if (buckets_[bucket].state == state) return true;
        return false;
    }

    /// Moves on what is under way, and looks for failures now and then.
    void poll() {
        if (under_way_ > 0) poll_alone();
        if (beside_ != nullptr && beside_->under_way_ > 0) beside_->poll_alone();
    }
    /// Another queue on the same links: who waits for the one moves on the other, which other ranks may wait for.
    void goes_with(bucket_queue& other) noexcept {
        beside_ = &other;
        other.beside_ = this;
    }
    /// Between two layers of backward: moves on what is under way, and calls others(), unless the thread has the turn.
    template <class Others>
    void beside_backward(const Others& others) {
        std::unique_lock<std::mutex> turn;
        if (thread_ && !(turn = thread_->try_turn())) return;
        if (!thread_ && under_way_ > 0) {
            poll();
            times_->note(report::activity::polling);
        }
        others();
    }
    /// A wait for one collective goes on as long as any of them does: they share the links.
    [[nodiscard]] comm::pending_operation among_all(comm::pending_operation one) const noexcept {
        waited_for_ = one;
        one.of = this;
        one.progress = [](const void* self) {
            const auto& queue = *static_cast<const bucket_queue*>(self);
            return queue.waited_for_.came() + queue.came_in_all();
        };
        return one;
    }
    /// Waits until the weights of a bucket are there.
    void wait_for(std::size_t bucket) {
        const entry& one = buckets_[bucket];
        comm::backoff waiting{among_all(one.reducer.pending())};
        for (poll(); one.state == stage::sharing; poll()) waiting.wait(all_.aborts());
    }
    /// Before each layer of a forward walk.
    [[gnu::noinline]] void wait_before(std::size_t layer) {
        if (layer > 0) times_->note(report::activity::forward, layer - 1);
        const std::size_t bucket = layer_bucket_[layer];
        const bool complete = network::facts[layer].parameters_here == 0 ||
                              std::atomic_ref{buckets_[bucket].state}.load(std::memory_order_acquire) != stage::sharing;
        const auto wait = [&](step_times::time begin) {
            wait_for(bucket);
            times_->waited_for_weights(first_ + bucket, begin, bucket == needed_.front());
        };
        if (thread_) {
            if (complete && thread_->is_lent()) return;
            const auto begin = step_times::clock::now();
            take_turn();
            if (!complete) wait(begin);
            lend();
            return;
        }
        if (under_way_ == 0) return;
        poll();
        times_->note(report::activity::polling);
        if (!complete && buckets_[bucket].state == stage::sharing) wait(step_times::clock::now());
    }
    /// Waits until all weights are there. Local: all ranks have started what it waits for, and go on with it in their
    /// forward and in gathers of this group. Throws remote_failure.
    [[gnu::noinline]] void wait_all() {
        if (under_way_ == 0) return;
        const auto begin = step_times::clock::now();
        for (const std::size_t bucket : needed_) wait_for(bucket);
        times_->waited_at_the_end(begin);
    }
    /// Waits until the sums that are under way are there; nothing is updated.
    void wait_for_sums() {
        for (const std::size_t bucket : needed_) {
            const entry& one = buckets_[bucket];
            if (one.state != stage::summing) continue;
            const auto begin = step_times::clock::now();
            comm::backoff waiting{among_all(one.reducer.pending())};
            for (poll(); one.state == stage::summing; poll()) waiting.wait(all_.aborts());
            times_->waited_at_the_end(begin);
        }
    }
    /// After a failure: other ranks bring the last complete step to its end as well, as long as they can.
    /// Weights are then those of that step on all ranks, as far as a second and twice the time of a step allow, 4 s
    /// at most.
    /// `is_last`: no other queue has anything under way any more.
    [[gnu::cold]] void abandon(bool is_last = true) noexcept {
        // They may have a step of work before them until they hear of it.
        const auto deadline = step_times::clock::now() + std::chrono::seconds{1} +
                              std::min<step_times::clock::duration>(2 * times_->step_took(), std::chrono::seconds{3});
        try {
            while (is_any(stage::sharing) && step_times::clock::now() < deadline) {
                move_on();
                std::this_thread::yield();
            }
        } catch (...) {  // nothing but the first failure counts
        }
        for (std::size_t bucket = 0; bucket < size(); ++bucket) buckets_[bucket].state = stage::idle;
        under_way_ = 0;
        begun_of_submitted_ = submissions_;
        if (is_last) times_->give_up();
    }

    /// The owner has the turn, and what was submitted has begun. Throws what the thread has thrown.
    void take_turn() {
        if (thread_) retake_turn();
    }
    /// The thread has the turn as long as something is under way.
    void lend() {
        if (thread_ && under_way_ > 0) thread_->lend();
    }
    [[gnu::noinline]] void rest() noexcept {
        if (!thread_) return;
        thread_->pause();
        on_thread_ = false;
    }

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        std::size_t sum = 0;
        for (std::size_t bucket = 0; bucket < size(); ++bucket) sum += buckets_[bucket].reducer.bytes_per_step();
        return sum;
    }
    /// Sums of gradients on this rank, in numbers.
    [[nodiscard]] std::size_t gradient_numbers() const noexcept {
        std::size_t sum = 0;
        for (std::size_t bucket = 0; bucket < size(); ++bucket) sum += buckets_[bucket].gradient.count;
        return sum;
    }
    /// Memory of the reducers: partial sums on their way, messages, states of the compressor.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }

private:
    [[gnu::cold]] void poll_in_gather() {
        if (under_way_ > 0 && (thread_ == nullptr || !thread_->is_lent())) poll_alone();
    }
    void poll_alone() {
        move_on();
        if (++polls_ % comm::backoff::check_interval == 0) all_.check();
    }
    [[nodiscard]] std::uint64_t came() const {
        std::uint64_t sum = 0;
        for (std::size_t bucket = 0; bucket < size(); ++bucket)
            sum += static_cast<std::uint64_t>(buckets_[bucket].state) + buckets_[bucket].reducer.pending().came();
        return sum;
    }

    /// In the queue beside this one as well.
    [[nodiscard]] std::uint64_t came_in_all() const { return came() + (beside_ != nullptr ? beside_->came() : 0); }

    template <class Plan>
    [[gnu::cold]] void add(const setup<Plan>& from, const bucket_range& range, const std::vector<bucket_range>& all,
                           const bucket_groups& groups) {
        reduce::bucket bucket = bucket_of(range, from.grid, groups, from.team, from.memory, from.inside);
        std::size_t sooner = 0;  // buckets that the next forward needs before this one
        for (const auto& other : all) sooner += other.lowest_layer < range.lowest_layer ? 1 : 0;
        // The next forward waits for all sums, and for weights as it comes to them.
        bucket.sum = {&order_, 0};
        bucket.share = {&order_, 1 + sooner};
        // The thread has time to add while layers are computed; norms need all sums before the first update; others
        // wait for a step.
        if (from.plan.progress_thread || measures_norms<Types>(from.plan) || from.sums_wait)
            bucket.adding = node::shared_adding::ahead;
        if constexpr (method::has_workers) {
            const bool whole_tensors = compress::sees_whole_tensors(from.plan.compressor);
            bucket.deal.pieces = make_pieces<network>(range, from.grid, whole_tensors ? 0 : from.plan.segment);
            bucket.deal.seed = from.plan.seed;
            bucket.deal.lengths = from.lane_lengths;
            bucket.costs = from.rule.costs();
        }
        if constexpr (!method::has_workers || compress::adapts<typename Types::compressor>) {
            if (from.memory == nullptr) from.rule.choose(bucket, sizeof(T), Types::optimizer::slot_count + 3.0);
        }
        std::size_t numbers = reduce::gradient_vectors(bucket) * range.count;
        if constexpr (Types::factors::are_used)
            if (range.by_factors) {
                bucket.factors =
                    Types::factors::template layer_of<network>(range.lowest_layer, from.rows, from.lane_lengths);
                numbers =
                    core::checked_product("numbers of all factors", bucket.factors.numbers(), bucket.ranks.size());
            }
        const auto make = [&] { return method::make(bucket, from.plan.compressor, from.arena); };
        entry& made = buckets_.add(range, make);
        made.gradient = from.memory == nullptr && bucket.deal.memory == nullptr
                            ? from.arena.template reserve<T>(numbers)
                            : from.arena.template reserve_shared<T>(numbers);
        times_->add_bucket(range.count);
        for (std::size_t layer = 0; layer < network::size; ++layer)
            if (network::facts[layer].parameters_here > 0 && network::offset(layer) >= range.first &&
                network::offset(layer) < range.first + range.count)
                layer_bucket_[layer] = size() - 1;
    }

    /// Each bucket once in a step, so there is room.
    [[gnu::noinline]] void submit(std::size_t bucket, std::uint64_t step) {
        submitted_[submissions_ % submitted_.size()] = {bucket, step};
        submissions_.fetch_add(1, std::memory_order_release);
        thread_->is_lent() ? thread_->ring() : thread_->lend();
    }
    [[gnu::noinline]] void start_submitted() {
        for (; begun_of_submitted_ != submissions_.load(std::memory_order_acquire); ++begun_of_submitted_) {
            const submitted_bucket& next = submitted_[begun_of_submitted_ % submitted_.size()];
            start(next.bucket, next.step);
        }
    }
    /// What the thread does in its turn.
    [[gnu::noinline]] comm::progress_thread::outcome pass() {
        using outcome = comm::progress_thread::outcome;
        start_submitted();
        if (under_way_ == 0) return outcome::nothing_to_do;
        const std::size_t before = under_way_;
        const std::uint64_t came = came_in_all();
        on_thread_ = true;
        poll();
        on_thread_ = false;
        return under_way_ != before || came_in_all() != came ? outcome::moved : outcome::nothing_came;
    }
    [[gnu::noinline]] void retake_turn() {
        thread_->take();
        start_submitted();
        times_->collect();
    }
    [[gnu::noinline]] void move_on() {
        for (const std::size_t bucket : needed_) {
            entry& one = buckets_[bucket];
            if ((one.state != stage::summing && one.state != stage::sharing) || !one.reducer.progress()) continue;
            const bool sums = one.state == stage::summing;
            // A forward of the owner may look at any time.
            std::atomic_ref{one.state}.store(sums ? stage::summed : stage::idle, std::memory_order_release);
            if (--under_way_ == 0 && updated_ != 0) change_->end(std::exchange(updated_, 0));
            times_->arrived(first_ + bucket, sums ? step_times::direction::sum : step_times::direction::share,
                            on_thread_);
        }
    }

    comm::group all_;
    commit* change_;
    step_times* times_;
    std::size_t first_;  // number of its first bucket among those of all queues
    std::vector<std::size_t> layer_bucket_;
    comm::send_order order_;  // of the messages of all buckets
    core::owned_list<entry> buckets_;
    std::vector<std::size_t> needed_;  // buckets in the order of forward
    std::size_t message_bytes_ = 0;
    const tensor::arena* arena_ = nullptr;
    std::vector<submitted_bucket> submitted_;  // a ring
    std::atomic<std::size_t> submissions_{0};
    std::size_t begun_of_submitted_ = 0;
    bool on_thread_ = false;
    std::size_t under_way_ = 0;
    bucket_queue* beside_ = nullptr;
    std::size_t polls_ = 0;
    std::uint64_t updated_ = 0;  // steps, once all buckets are updated, until all weights have arrived
    mutable comm::pending_operation waited_for_{};   // by the owner
    std::unique_ptr<comm::progress_thread> thread_;  // last: it uses the others
};

}  // namespace lockstep::sync
