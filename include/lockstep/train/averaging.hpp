// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// From the gradients of each rank's lanes to new weights on every rank: buckets, their reducers, and the owners' updates.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/progress_thread.hpp"
#include "lockstep/comm/send_order.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/reduce/sum_rule.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/train/buckets.hpp"
#include "lockstep/train/commit.hpp"
#include "lockstep/train/events.hpp"
#include "lockstep/train/lane_sums.hpp"
#include "lockstep/train/network_run.hpp"
#include "lockstep/train/overlap_clock.hpp"
#include "lockstep/train/recorder.hpp"

namespace lockstep::train {

/// Gradients of replicated layers are averaged over all ranks, those of a shard over the ranks with the same shard. A bucket starts when
/// backward has finished its lowest layer. When all losses are there (nobody can fail any more), buckets are updated as their sums arrive,
/// and their weights set off in the order in which the next forward needs them; it waits in front of each layer for its bucket. Sums go
/// before weights, and weights in that order, also where several are under way.
/// With a progress thread, layers are computed while it has the turn (see comm/progress_thread.hpp): what backward finishes is submitted to
/// it, forward asks it for the turn where weights are missing. It has the turn also while strips are updated. Everything else has it
/// itself: the thread rests from the end of an update to the next walk that has something under way.
/// Memory: one gradient for each node of the rank's lanes; optimizer slots for the strips that it owns.
template <class T, class Network, class Optimizer, class Compressor>
class averaging {
public:
    template <class Plan>
    [[gnu::cold]] averaging(const Plan& plan, const partition::grid& on, const comm::group& all, const comm::group& replicas,
                            std::size_t least, reduce::sum_rule& rule, parallel::team team, tensor::arena& arena,
                            comm::shared_parts* memory, commit& change)
        : all_{all}, change_{&change}, optimizer_{plan.optimizer}, seed_{plan.seed}, overlaps_{plan.overlap}, layer_bucket_(Network::size) {
        const std::size_t before = arena.bytes();
        const auto ranges = make_buckets<Network>(least);
        for (const auto& range : ranges) {
            reduce::bucket of = bucket_of(range, on, all, replicas, team, memory);
            std::size_t sooner = 0;  // buckets that the next forward needs before this one
            for (const auto& other : ranges) sooner += other.lowest_layer < range.lowest_layer ? 1 : 0;
            // The next forward waits for all sums, and for weights as it comes to them.
            of.sum = {&order_, 0};
            of.share = {&order_, 1 + sooner};
            // The thread has time to add while layers are computed.
            if (plan.progress_thread) of.adding = comm::shared_adding::ahead;
            if constexpr (reduce::keeps_lane_order<T, Compressor>)
                if (memory == nullptr) rule.choose(of, sizeof(T), Optimizer::slot_count + 3.0);
            std::uint32_t series = 0;  // nothing random in a sum
            if constexpr (!reduce::keeps_lane_order<T, Compressor>) series = rounding_series(range, buckets_.size(), ranges.size(), on);
            buckets_.push_back({range,
                                reduce::make_reducer<T>(of, plan.compressor, arena),
                                arena.template reserve_shared<T>(reduce::gradient_vectors(of) * range.count),
                                {},
                                {},
                                series});
            times_.add_bucket(range.count);
            auto& made = buckets_.back();
            const auto owned = made.reducer.owned();
            made.slots = arena.template reserve<T>(Optimizer::slot_count * owned.size());
            made.runs = make_runs<Network>(range.first + owned.first, owned.size());
            for (std::size_t layer = 0; layer < Network::size; ++layer)
                if (Network::facts[layer].parameters_here > 0 && Network::offset(layer) >= range.first &&
                    Network::offset(layer) < range.first + range.count)
                    layer_bucket_[layer] = buckets_.size() - 1;
        }
        for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) needed_.push_back(bucket);
        core::sort(needed_, [&](std::size_t a, std::size_t b) { return buckets_[a].range.lowest_layer < buckets_[b].range.lowest_layer; });
        message_bytes_ = arena.bytes() - before - (gradient_numbers() + slot_numbers()) * sizeof(T);
        if (!plan.progress_thread || all.size() == 1) return;
        submitted_.resize(buckets_.size());
        landed_.reserve(2 * buckets_.size());
        thread_ = std::make_unique<comm::progress_thread>([](void* self) { return static_cast<averaging*>(self)->pass(); }, this);
    }
    averaging(const averaging&) = delete;  // the thread knows where it is
    averaging& operator=(const averaging&) = delete;

    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        for (auto& one : buckets_) one.reducer.bind(arena);
    }

    [[nodiscard]] gradient_place<T> place(std::size_t layer) const noexcept {
        if (Network::facts[layer].parameters_here == 0) return {};
        const auto& in = buckets_[layer_bucket_[layer]];
        return {(*arena_)[in.gradient].data() + (Network::offset(layer) - in.range.first), in.range.count};
    }

    /// Backward has finished a layer: starts what is complete and moves on what is under way, and `others`.
    template <class Others>
    void done(std::size_t layer, std::uint64_t step, Others& others) {
        note(activity::backward, layer);
        for (std::size_t bucket = 0; overlaps_ && bucket < buckets_.size(); ++bucket)
            if (buckets_[bucket].range.lowest_layer == layer) thread_ ? submit(bucket, step) : start(bucket, step);
        std::unique_lock<std::mutex> turn;
        if (thread_ && !(turn = thread_->try_turn())) return;
        if (!thread_ && under_way_ > 0) {
            poll();
            note(activity::polling);
        }
        others.poll();
        all_.notices().glance();
    }

    /// Backward is over. Waits until all ranks have come so far: who has all losses knows that no rank can fail any more in this step.
    /// Number 1 of `losses` is used here.
    [[nodiscard]] double meet(step_sums& losses, std::uint64_t step) {
        for (std::size_t bucket = 0; !overlaps_ && bucket < buckets_.size(); ++bucket) start(bucket, step);
        begin_ = clock::now();
        take_turn();
        const double since_last = met_ == time{} ? 0 : overlap_clock::seconds(met_, begin_);
        losses.fill(1, since_last);
        change_->meet(
            among_all(losses.awaited()), [&] { losses.start(); }, [&] { return losses.progress(); }, [&] { poll(); });
        const double loss = losses.finish<1>()[0];
        met_ = clock::now();
        waited_ = times_.waited(begin_, met_);
        slow_ = losses.largest(1) - since_last;
        note(activity::waiting, buckets_.size());
        return loss;
    }

    /// Updates the strips of this rank as their sums arrive, and lets the weights set off.
    /// False: gradients or new weights of this rank's strips are not finite.
    [[nodiscard]] bool finish(std::span<T> weights, double rate, std::uint64_t step) {
        std::optional<comm::patience> waiting;
        times_.begin_round(overlap_clock::direction::share);
        std::size_t shared = 0;
        time idle_since = clock::now();
        while (shared < needed_.size()) {
            poll();
            std::size_t next = shared;
            while (next < needed_.size() && buckets_[needed_[next]].state != stage::summed) ++next;
            if (next == needed_.size()) {
                if (!waiting) waiting.emplace(among_all(buckets_[needed_[shared]].reducer.awaited()));
                waiting->wait(all_.notices());
                continue;
            }
            waiting.reset();
            const auto begin = clock::now();
            waited_ += times_.waited(idle_since, begin);
            note(activity::waiting, buckets_.size());
            entry& summed = buckets_[needed_[next]];
            summed.reducer.finish();
            if (thread_ && under_way_ > 0) thread_->lend();
            change_->begin();
            update(summed, weights, rate, step);
            take_turn();
            summed.state = stage::updated;
            // What is needed first goes first, and alone as long as the sums in front of it use the links.
            for (; shared < needed_.size() && buckets_[needed_[shared]].state == stage::updated; ++shared) share(needed_[shared], weights);
            idle_since = clock::now();
            update_seconds_ += overlap_clock::seconds(begin, idle_since);
            note(activity::update, needed_[next]);
        }
        if (overlaps_) times_.explain_sums(begin_, waited_, slow_);
        times_.begin_round(overlap_clock::direction::sum);
        updated_ = step + 1;
        if (needed_.empty()) change_->end(std::exchange(updated_, 0));
        if (overlaps_)
            poll();
        else
            settle();
        return finite_.exchange(true, std::memory_order_relaxed);
    }

    /// In front of each layer of the next forward.
    [[nodiscard]] layer_hook in_front() noexcept {
        return {this, [](void* of, std::size_t layer) { static_cast<averaging*>(of)->await(layer); }};
    }
    /// Behind the last one.
    void forward_done() {
        take_turn();
        note(activity::forward, Network::size - 1);
    }
    /// For exchanges between layers; null where there is none.
    [[nodiscard]] comm::progress_thread* thread() noexcept { return thread_.get(); }
    /// To be kept through a step: however that ends, the thread rests before anything else is unwound.
    [[nodiscard]] auto step_in_turns() noexcept {
        struct end {
            averaging& of;
            ~end() {
                if (of.thread_) of.rest();
            }
        };
        return end{*this};
    }

    /// Waits until all weights are there. Local: all ranks have started what it waits for. Throws remote_failure.
    [[gnu::noinline]] void settle() {
        if (under_way_ == 0) return;
        const auto begin = clock::now();
        for (const std::size_t bucket : needed_) land(bucket);
        const double wait = times_.waited(begin, clock::now());
        if (overlaps_) times_.explain_end(wait);
        note(activity::waiting, buckets_.size());
    }
    /// After a failure: other ranks bring the last complete step to its end as well, as long as they can.
    [[gnu::cold]] void settle_after_failure() noexcept {
        const auto shares = [&] {
            bool any = false;
            for (const auto& one : buckets_) any = any || one.state == stage::sharing;
            return any;
        };
        // They may have a step of work before them until they hear of it.
        const auto deadline = clock::now() + std::chrono::seconds{1} + std::min<clock::duration>(2 * step_took_, std::chrono::seconds{3});
        try {
            while (shares() && clock::now() < deadline) {
                move_on();
                std::this_thread::yield();
            }
        } catch (...) {  // nothing but the first failure counts
        }
        for (auto& one : buckets_) one.state = stage::idle;
        under_way_ = 0;
        begun_of_submitted_ = submissions_;
        times_.give_up(clock::now());
    }

    /// Tells `to` what happens from now on; null: nobody.
    [[gnu::cold]] void record(recorder* to) {
        recorder_ = to;
        if (to == nullptr) return;
        to->name_of_layer = [](std::size_t layer) { return layer < Network::size ? Network::facts[layer].name : std::string_view{}; };
        to->buckets.clear();
        for (const auto& one : buckets_) {
            std::size_t highest = one.range.lowest_layer;
            for (std::size_t layer = 0; layer < Network::size; ++layer)
                if (Network::facts[layer].parameters_here > 0 && &buckets_[layer_bucket_[layer]] == &one)
                    highest = std::max(highest, layer);
            to->buckets.push_back({one.range.lowest_layer, highest, one.reducer.bytes_per_step()});
        }
    }
    void note(activity what, std::size_t number = 0) {
        if (recorder_ != nullptr) recorder_->lap(what, number);
    }
    void begin_step(std::uint64_t step) {
        const auto now = clock::now();
        if (begun_ != time{}) step_took_ = now - begun_;
        begun_ = now;
        if (recorder_ != nullptr) recorder_->begin_step(step);
    }

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : buckets_) sum += one.reducer.bytes_per_step();
        return sum;
    }
    /// Optimizer state on this rank, in numbers.
    [[nodiscard]] std::size_t slot_numbers() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : buckets_) sum += one.slots.count;
        return sum;
    }
    /// Sums of gradients on this rank, in numbers.
    [[nodiscard]] std::size_t gradient_numbers() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : buckets_) sum += one.gradient.count;
        return sum;
    }
    /// Memory of the reducers: partial sums on their way, messages, states of the compressor.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
    [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
    /// Of gradients, weights and losses: while this rank did nothing else.
    [[nodiscard]] double exposed_seconds() const noexcept { return times_.exposed(); }
    /// The times of the rest of a step, with those of this one.
    [[nodiscard]] seconds_spent added_to(seconds_spent out) const noexcept {
        out.update += update_seconds_;
        out.communication_hidden += times_.hidden();
        out.communication_exposed += times_.exposed();
        out.because = times_.because();
        out.because.other = out.communication_exposed - out.because.sum();
        return out;
    }

private:
    using clock = overlap_clock::clock;
    using time = overlap_clock::time;
    enum class stage : unsigned char { idle, summing, summed, updated, sharing };

    struct entry {
        bucket_range range;
        reduce::reducer_for<T, Compressor> reducer;
        tensor::slice<T> gradient;
        tensor::slice<T> slots;
        std::vector<update_run> runs;
        std::uint32_t series = 0;
        stage state = stage::idle;
    };

    /// A bucket that is to be started by the thread.
    struct submission {
        std::size_t bucket = 0;
        std::uint64_t step = 0;
    };
    /// A bucket that has landed while the owner computed, for the recorder, which belongs to the owner.
    struct landing {
        activity what;
        std::size_t bucket;
        time begin, end;
    };

    /// Each bucket once in a step, so there is room.
    [[gnu::noinline]] void submit(std::size_t bucket, std::uint64_t step) {
        submitted_[submissions_ % submitted_.size()] = {bucket, step};
        submissions_.fetch_add(1, std::memory_order_release);
        thread_->is_lent() ? thread_->ring() : thread_->lend();
    }
    [[gnu::noinline]] void start_submitted() {
        for (; begun_of_submitted_ != submissions_.load(std::memory_order_acquire); ++begun_of_submitted_) {
            const submission& next = submitted_[begun_of_submitted_ % submitted_.size()];
            start(next.bucket, next.step);
        }
    }
    /// What the thread does in its turn.
    [[gnu::noinline]] comm::progress_thread::outcome pass() {
        using outcome = comm::progress_thread::outcome;
        start_submitted();
        if (under_way_ == 0) return outcome::nothing_to_do;
        const std::size_t before = under_way_;
        const std::uint64_t came = among_all({}).came();
        on_thread_ = true;
        poll();
        on_thread_ = false;
        return under_way_ != before || among_all({}).came() != came ? outcome::moved : outcome::nothing_came;
    }
    /// The owner has the turn, and what was submitted has begun. Throws what the thread has thrown.
    void take_turn() {
        if (thread_) retake_turn();
    }
    [[gnu::noinline]] void rest() noexcept {
        thread_->pause();
        on_thread_ = false;
    }
    [[gnu::noinline]] void retake_turn() {
        thread_->take();
        start_submitted();
        for (const landing& one : landed_)
            if (recorder_ != nullptr) recorder_->flight(one.what, one.bucket, one.begin, one.end);
        landed_.clear();
    }

    [[gnu::noinline]] void start(std::size_t bucket, std::uint64_t step) {
        auto& one = buckets_[bucket];
        times_.started(bucket, overlap_clock::direction::sum, clock::now());
        one.reducer.start((*arena_)[one.gradient],
                          core::random_stream{seed_, core::purpose::rounding, one.series, static_cast<std::uint32_t>(step)});
        one.state = stage::summing;
        ++under_way_;
    }
    void share(std::size_t bucket, std::span<T> weights) {
        auto& one = buckets_[bucket];
        times_.started(bucket, overlap_clock::direction::share, clock::now());
        one.reducer.share(weights.subspan(one.range.first, one.range.count));
        one.state = stage::sharing;
        ++under_way_;
    }

    /// Moves on what is under way, and looks for failures now and then.
    void poll() {
        if (under_way_ == 0) return;
        move_on();
        if (++polls_ % comm::patience::notice_interval == 0) all_.check();
    }
    [[gnu::noinline]] void move_on() {
        for (const std::size_t bucket : needed_) {
            auto& one = buckets_[bucket];
            if ((one.state != stage::summing && one.state != stage::sharing) || !one.reducer.progress()) continue;
            const bool sums = one.state == stage::summing;
            const auto where = sums ? overlap_clock::direction::sum : overlap_clock::direction::share;
            const auto now = clock::now();
            // A forward of the owner may look at any time.
            std::atomic_ref{one.state}.store(sums ? stage::summed : stage::idle, std::memory_order_release);
            if (--under_way_ == 0 && updated_ != 0) change_->end(std::exchange(updated_, 0));
            times_.landed(bucket, where, now);
            if (recorder_ == nullptr) continue;
            const landing flown{sums ? activity::sum : activity::share, bucket, times_.begin_of(bucket, where), now};
            on_thread_ ? landed_.push_back(flown) : recorder_->flight(flown.what, bucket, flown.begin, now);
        }
    }

    /// A wait for one collective goes on as long as any of them does: they share the links.
    [[nodiscard]] comm::awaited among_all(comm::awaited one) const noexcept {
        one.of = this;
        one.progress = [](const void* self) {
            std::uint64_t came = 0;
            for (const auto& bucket : static_cast<const averaging*>(self)->buckets_)
                came += static_cast<std::uint64_t>(bucket.state) + bucket.reducer.awaited().came();
            return came;
        };
        return one;
    }
    /// Waits until the weights of a bucket are there.
    void land(std::size_t bucket) {
        const auto& one = buckets_[bucket];
        comm::patience waiting{among_all(one.reducer.awaited())};
        for (poll(); one.state == stage::sharing; poll()) waiting.wait(all_.notices());
    }
    [[gnu::noinline]] void await(std::size_t layer) {
        if (layer > 0) note(activity::forward, layer - 1);
        const std::size_t bucket = layer_bucket_[layer];
        const bool complete = Network::facts[layer].parameters_here == 0 ||
                              std::atomic_ref{buckets_[bucket].state}.load(std::memory_order_acquire) != stage::sharing;
        if (thread_) {
            if (complete && thread_->is_lent()) return;
            const auto begin = clock::now();
            take_turn();
            if (!complete) wait_in_front(bucket, begin);
            if (under_way_ > 0) thread_->lend();
            return;
        }
        if (under_way_ == 0) return;
        poll();
        note(activity::polling);
        if (!complete && buckets_[bucket].state == stage::sharing) wait_in_front(bucket, clock::now());
    }
    void wait_in_front(std::size_t bucket, time begin) {
        land(bucket);
        const auto end = clock::now();
        times_.waited(begin, end);
        times_.explain_share(bucket, begin, end, bucket == needed_.front());
        note(activity::waiting, bucket);
    }

    void update(entry& one, std::span<T> weights, double rate, std::uint64_t step) {
        const auto owned = one.reducer.owned();
        const std::span<T> here = weights.subspan(one.range.first, one.range.count);
        const tensor::slots<T> slots{(*arena_)[one.slots].data(), Optimizer::slot_count, owned.size(), owned.size()};
        one.reducer.update(here, [&](parallel::block part, std::span<const T> sum) noexcept {
            for (const auto& run : one.runs) {
                const std::size_t begin = run.first - one.range.first;
                const std::size_t first = std::max(begin, part.first), last = std::min(begin + run.count, part.last);
                if (first >= last) continue;
                const optim::update_pass<T> pass{.weights = here.subspan(first, last - first),
                                                 .gradient = sum.subspan(first - part.first, last - first),
                                                 .slots = slots.part(first - owned.first, last - first),
                                                 .rate = rate,
                                                 .step = step,
                                                 .decays = run.decays};
                if (!optim::update_checked(optimizer_, pass)) [[unlikely]]
                    finite_.store(false, std::memory_order_relaxed);
            }
        });
    }

    comm::group all_;
    commit* change_;
    Optimizer optimizer_;
    std::uint64_t seed_;
    bool overlaps_;
    std::vector<std::size_t> layer_bucket_;
    comm::send_order order_;           // of the messages of all buckets
    std::deque<entry> buckets_;        // which stay where they are
    std::vector<std::size_t> needed_;  // buckets in the order of forward
    std::size_t message_bytes_ = 0;
    const tensor::arena* arena_ = nullptr;
    recorder* recorder_ = nullptr;
    std::vector<submission> submitted_;  // a ring
    std::atomic<std::size_t> submissions_{0};
    std::size_t begun_of_submitted_ = 0;
    std::vector<landing> landed_;
    bool on_thread_ = false;
    std::size_t under_way_ = 0;
    std::size_t polls_ = 0;
    overlap_clock times_;
    time begun_{};  // this step
    time begin_{};  // of waiting behind backward
    time met_{};    // all ranks, the last time
    clock::duration step_took_{};
    double waited_ = 0;
    double slow_ = 0;
    double update_seconds_ = 0;
    std::uint64_t updated_ = 0;                      // steps, once all buckets are updated, until all weights have landed
    std::atomic<bool> finite_ = true;                // gradients and weights of this step
    std::unique_ptr<comm::progress_thread> thread_;  // last: it uses the others
};

}  // namespace lockstep::train
