// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// From summed gradients to new weights: each rank updates the strips that it owns and hands them out. What strategies
// are built on.
// Tested by tests/equivalence/owner_updates.cpp.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/optim/concept.hpp"
#include "lockstep/sync/bucket_queue.hpp"
#include "lockstep/sync/buckets.hpp"
#include "lockstep/sync/commit.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/lane_sums.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/sync/tensor_norms.hpp"

namespace lockstep::sync {

/// What a rank keeps for its strip of a bucket.
template <class T>
struct owned_strip {
    /// slot_count x its numbers.
    tensor::slice<T> slots;
    /// Its parts, of a tensor each, and whether they decay.
    std::vector<update_run> runs;
};

/// Synchronous SGD: a bucket starts when backward has finished its lowest layer. When all losses are there (no rank can
/// fail any more), buckets are updated as their sums arrive, and their weights set off in the order in which the next
/// forward needs them; it waits before each layer for its bucket. A strategy of one's own derives from this and says
/// its own words for those that differ. What reads weights waits for all of them: evaluation, prediction, views,
/// hashes, observers that may look, the ends of an epoch, of fit() and of step(). That wait is local: all ranks have
/// started what it waits for, and go on with it in their forward and in gathers of this group. Memory: that of a
/// bucket_queue, and optimizer slots for the strips that this rank owns.
template <class Types>
class owner_updates {
protected:
    /// float or double.
    using T = typename Types::value_type;
    /// That of the run.
    using network = typename Types::network;
    /// That of the run.
    using optimizer = typename Types::optimizer;
    /// Buckets of gradients with their reducers.
    using queue = bucket_queue<Types>;
    /// How far a bucket is.
    using stage = typename queue::stage;

public:
    /// Sets of gradients, each with its reducers.
    static constexpr std::size_t gradient_sets = 1;

    /// Reserves slots for the strips of this rank in the arena of the step. Collective.
    template <class Plan>
    [[gnu::cold]] explicit owner_updates(const setup<Plan>& from)
        : all_{from.all},
          grid_{&from.grid},
          change_{&from.change},
          optimizer_{from.plan.optimizer},
          overlaps_{from.plan.overlap},
          times_{from.plan.overlap},
          queue_{from, times_},
          norms_{from, queue_} {
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket) {
            const bucket_range& range = queue_[bucket].range;
            const auto here = stored(queue_[bucket]);
            owned_.push_back({from.arena.template reserve<T>(optimizer::slot_count * here.size()),
                              make_runs<network>(range.first + here.first, here.size(),
                                                 optim::needs_norms<optimizer> || optim::needs_tensors<optimizer>)});
        }
    }

    /// Memory is there: once, before the first step.
    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        queue_.bind(arena);
        if constexpr (optim::Proposes<optimizer, T>)
            for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket)
                queue_[bucket].reducer.propose_with(optimizer_, slots_of(queue_, bucket));
        if constexpr (requires { queue_[0].reducer.keep_slots(slots_of(queue_, 0)); })
            for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket)
                queue_[bucket].reducer.keep_slots(slots_of(queue_, bucket));
    }

    /// Steps count from 0.
    void begin(std::uint64_t step) {
        times_.begin_step(step + 1);
        if constexpr (Types::has_norms) norms_.begin(step);
    }
    /// Forward waits before each layer for the weights of its bucket.
    [[nodiscard]] layer_hook weights_needed() noexcept {
        return {this, [](void* of, std::size_t layer) { static_cast<owner_updates*>(of)->queue_.wait_before(layer); }};
    }
    /// Forward is over.
    void forward_done() {
        queue_.take_turn();
        times_.note(report::activity::forward, network::size - 1);
    }
    /// Where backward writes the gradient of a layer.
    [[nodiscard]] gradient_place<T> gradient_location(std::size_t layer) const noexcept {
        return queue_.gradient_location(layer);
    }
    /// Backward has finished a layer: starts what is complete and moves on what is under way.
    template <class Others>
    void gradient_ready(std::size_t layer, std::uint64_t step, const Others& others) {
        times_.note(report::activity::backward, layer);
        if (overlaps_) queue_.ready(layer, step);
        queue_.beside_backward(others);
    }

    /// Backward is over. Waits until all ranks have come so far. Number 1 of `losses` is used here.
    [[nodiscard]] double reduce_loss(step_sums& losses, std::uint64_t step) {
        if (!overlaps_) queue_.start_all(step);
        return agree_on_loss(losses, [&] { queue_.poll(); });
    }

    /// Norms of all tensors, before any weight changes: waits for the sums of all gradients, and for what other ranks
    /// add. The first tensor with a norm that is not finite, on all ranks alike; the number of tensors if all are.
    [[nodiscard]] std::size_t measure_norms(std::span<const T> weights) {
        if constexpr (Types::has_norms)
            if (norms_.is_active()) return wait_for_norms(weights);
        return tensor_count<network>();
    }

    /// Updates the strips of this rank as their sums arrive, and lets the weights set off.
    /// False: gradients or new weights of this rank's strips are not finite.
    [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
        return commit_sums(queue_, weights, rate, step);
    }

    /// Waits until all weights are those of the last step.
    void complete() { queue_.wait_all(); }
    /// After a failure: what is under way is left alone.
    [[gnu::cold]] void abandon() noexcept { queue_.abandon(); }

    /// For redistributions between layers; null where there is none.
    [[nodiscard]] comm::progress_thread* thread() noexcept { return queue_.thread(); }
    /// To be kept through a step: however that ends, the thread rests before anything else is unwound.
    [[nodiscard]] auto step_in_turns() noexcept {
        struct end {
            queue& of;
            ~end() { of.rest(); }
        };
        return end{queue_};
    }
    /// Seconds of the step, by kind.
    [[nodiscard]] step_times& times() noexcept { return times_; }
    /// The same.
    [[nodiscard]] const step_times& times() const noexcept { return times_; }

    /// Tells `to` what happens from now on; null: none.
    [[gnu::cold]] void record(report::recorder* to) {
        times_.record(to);
        if (to == nullptr) return;
        to->name_of_layer = [](std::size_t layer) {
            return layer < network::size ? network::facts[layer].name : std::string_view{};
        };
        to->buckets.clear();
        add_buckets(*to, queue_);
    }

    /// Shows what outlives a step (tensor/state.hpp) beside the weights: slots of the optimizer, and what reducers
    /// keep.
    template <class Visitor>
    void visit_state(Visitor&& visit) const {
        for (std::size_t slot = 0; slot < optimizer::slot_count; ++slot)
            visit_owned(visit, "optimizer", slot, [&](std::size_t bucket) {
                const auto owned = queue_[bucket].reducer.owned(), here = stored(queue_[bucket]);
                return slots_of(queue_, bucket)[slot].subspan(owned.first - here.first, owned.size());
            });
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket) queue_[bucket].reducer.visit_state(visit, 0);
    }

    /// Sent by this rank.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return queue_.bytes_per_step() + norms_.bytes_per_step();
    }
    /// Optimizer state on this rank, in numbers.
    [[nodiscard]] std::size_t slot_numbers() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : owned_) sum += one.slots.count;
        return sum;
    }
    /// Gradients of this rank, in numbers.
    [[nodiscard]] std::size_t gradient_numbers() const noexcept { return queue_.gradient_numbers(); }
    /// Memory for messages on this rank.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return queue_.message_bytes(); }
    /// Buckets of gradients.
    [[nodiscard]] std::size_t bucket_count() const noexcept { return queue_.size(); }
    /// Whether rows of x and dy of a layer travel in place of its gradient.
    [[nodiscard]] bool sends_factors(std::size_t layer) const noexcept {
        return network::facts[layer].parameters_here > 0 && queue_[queue_.bucket_of_layer(layer)].range.by_factors;
    }

protected:
    /// The numbers of a bucket that this rank has slots for: those that it owns, or may come to own.
    [[nodiscard]] static parallel::block stored(const typename queue::entry& of) noexcept {
        if constexpr (requires { of.reducer.stored(); })
            return of.reducer.stored();
        else
            return of.reducer.owned();
    }

    /// Tells a recorder the layers and bytes of each bucket.
    [[gnu::cold]] static void add_buckets(report::recorder& to, const queue& of) {
        for (std::size_t bucket = 0; bucket < of.size(); ++bucket)
            to.buckets.push_back(
                {of[bucket].range.lowest_layer, of[bucket].range.highest_layer, of[bucket].reducer.bytes_per_step()});
    }

    /// Shows numbers for the strips of this rank, tensor by tensor: numbers_of(bucket) are those of its strip.
    template <class Visitor, class F>
    void visit_owned(Visitor&& visit, std::string_view role, std::size_t slot, const F& numbers_of) const {
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket) {
            const auto& one = queue_[bucket];
            const parallel::block owned = one.reducer.owned();
            const auto numbers = numbers_of(bucket);
            const bool is_first = (one.range.segment == model::segment::sharded ? grid_->replica() : grid_->rank) == 0;
            for (const reduce::piece& tensor : make_pieces<network>(one.range, *grid_, 0)) {
                const std::size_t first = std::max(owned.first, tensor.first),
                                  last = std::min(owned.last, tensor.first + tensor.count);
                if (first >= last) continue;
                visit(tensor::state_part<T>{.role = role,
                                            .slot = slot,
                                            .tensor = tensor.tensor,
                                            .first = first - tensor.first,
                                            .numbers = numbers.subspan(first - owned.first, last - first),
                                            .speaks = !one.reducer.replicates() || is_first});
            }
        }
    }
    /// The same for an array of all parameters of this rank, as the weights are.
    template <class Visitor>
    void visit_owned(Visitor&& visit, std::string_view role, std::size_t slot, std::span<T> all) const {
        visit_owned(visit, role, slot, [&](std::size_t bucket) {
            const auto owned = queue_[bucket].reducer.owned();
            return all.subspan(queue_[bucket].range.first + owned.first, owned.size());
        });
    }

    /// All ranks have done all that can fail; poll() meanwhile. The mean loss.
    template <class Poll>
    [[nodiscard]] double agree_on_loss(step_sums& losses, const Poll& poll) {
        const double since_last = times_.begin_agreeing();
        queue_.take_turn();
        losses.fill(1, since_last);
        change_->agree(
            queue_.among_all(losses.pending()), [&] { losses.start(); }, [&] { return losses.progress(); }, poll);
        const double loss = losses.finish<1>()[0];
        times_.agreed(losses.largest(1) - since_last);
        return loss;
    }

    /// Squares are added as sums arrive; then those of all ranks meet.
    [[nodiscard]] std::size_t wait_for_norms(std::span<const T> weights) {
        times_.begin_norms();
        const auto wait_for = [&](comm::pending_operation what, const auto& is_there) {
            for (comm::backoff waiting{queue_.among_all(what)}; !is_there(); waiting.wait(all_.aborts())) queue_.poll();
            times_.begin_update();
        };
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket) {
            auto& one = queue_[bucket];
            wait_for(one.reducer.pending(), [&] { return one.state == stage::summed; });
            one.reducer.finish();
            norms_.add(bucket, one.range.first, queue_.sum_of(bucket),
                       weights.subspan(one.range.first, one.range.count), slots_of(queue_, bucket),
                       one.reducer.owned().first);
            times_.end_update(queue_.first() + bucket);
        }
        norms_.start();
        const auto are_there = [&] { return norms_.progress(); };
        try {
            wait_for(norms_.pending(), are_there);
        } catch (const comm::remote_failure&) {
            // A rank with all the norms may have refused them, as this rank then does.
            if (!comm::comes_still(norms_.pending(), are_there)) throw;
        }
        const std::size_t first_bad = norms_.finish();
        times_.end_update(queue_.first() + queue_.size() - 1);
        if (!norms_.has_factor()) {
            change_->call_off();
            norms_.refuse_factor();
        }
        return first_bad;
    }

    /// Changes nothing after an update.
    struct nothing_more {
        /// Leaves the weights as they are.
        void operator()(const optim::update_pass<T>&, std::size_t) const noexcept {}
    };

    /// Updates what the sums of a queue say, and lets the weights set off. `after(pass, first)` may change pass.weights
    /// once more, number by number, before others get them: they begin at parameter `first` of this rank. Called on the
    /// threads of the team. `delay`: steps since the gradients, which the optimizer's count of updates leaves out.
    /// False: gradients or new weights of this rank are not finite.
    template <class After = nothing_more>
    [[nodiscard]] bool commit_sums(queue& of, std::span<T> weights, double rate, std::uint64_t step,
                                   const After& after = {}, std::uint64_t delay = 0) {
        const std::span<const std::size_t> needed = of.needed();
        std::optional<comm::backoff> waiting;
        times_.begin_updates();
        std::size_t shared = 0;
        while (shared < needed.size()) {
            of.poll();
            std::size_t next = shared;
            while (next < needed.size() && of[needed[next]].state != stage::summed) ++next;
            if (next == needed.size()) {
                if (!waiting) waiting.emplace(of.among_all(of[needed[shared]].reducer.pending()));
                waiting->wait(all_.aborts());
                continue;
            }
            waiting.reset();
            times_.begin_update();
            of[needed[next]].reducer.finish();
            of.lend();
            change_->begin();
            update(of, needed[next], weights, rate, step - delay, after);
            of.take_turn();
            of[needed[next]].state = stage::updated;
            // What is needed first goes first, and alone as long as the sums before it use the links.
            for (; shared < needed.size() && of[needed[shared]].state == stage::updated; ++shared)
                of.share(needed[shared], weights);
            times_.end_update(of.first() + needed[next]);
        }
        times_.end_updates();
        of.completes(step + 1);
        overlaps_ ? of.poll() : of.wait_all();
        return finite_.exchange(true, std::memory_order_relaxed);
    }

    /// The optimizer, with norms where it needs them. False: numbers are not finite.
    [[nodiscard]] bool update_part(const optim::update_pass<T>& pass,
                                   [[maybe_unused]] std::size_t tensor) const noexcept {
        if constexpr (Types::has_norms)
            return norms_.update(optimizer_, pass, tensor);
        else
            return optim::update_checked(optimizer_, pass);
    }

    /// The optimizer's slots for the strip of this rank.
    [[nodiscard]] tensor::slots<T> slots_of(const queue& of, std::size_t bucket) const noexcept {
        const std::size_t n = stored(of[bucket]).size();
        return {(*arena_)[owned_[bucket].slots].data(), optimizer::slot_count, n, n};
    }

    /// New weights for the strip of this rank, whose sum is there.
    template <class After>
    void update(queue& of, std::size_t bucket, std::span<T> weights, double rate, std::uint64_t step,
                const After& after) {
        auto& one = of[bucket];
        const owned_strip<T>& strip = owned_[bucket];
        const auto kept = stored(one);
        const std::span<T> here = weights.subspan(one.range.first, one.range.count);
        const tensor::slots<T> slots = slots_of(of, bucket);
        one.reducer.update(here, [&](parallel::block part, std::span<const T> sum) noexcept {
            for (const auto& run : strip.runs) {
                const std::size_t begin = run.first - one.range.first;
                const std::size_t first = std::max(begin, part.first), last = std::min(begin + run.count, part.last);
                if (first >= last) continue;
                optim::update_pass<T> pass{.weights = here.subspan(first, last - first),
                                           .gradient = sum.subspan(first - part.first, last - first),
                                           .slots = slots.part(first - kept.first, last - first),
                                           .rate = rate,
                                           .step = step,
                                           .decays = run.decays};
                if constexpr (optim::needs_tensors<optimizer>) pass.tensor = run.place.from(first - begin);
                if (!update_part(pass, run.tensor)) [[unlikely]]
                    finite_.store(false, std::memory_order_relaxed);
                after(pass, one.range.first + first);
            }
        });
    }

    comm::group all_;                               ///< the ranks of the trainer
    const partition::grid* grid_;                   ///< what this rank has
    sync::commit* change_;                          ///< agreement on the step
    optimizer optimizer_;                           ///< of the plan
    bool overlaps_;                                 ///< buckets start during backward
    step_times times_;                              ///< of the step
    queue queue_;                                   ///< buckets of gradients
    [[no_unique_address]] norms_for<Types> norms_;  ///< none without clipping and layer-wise rates
    std::vector<owned_strip<T>> owned_;             ///< for each bucket
    const tensor::arena* arena_ = nullptr;          ///< all memory of a step
    std::atomic<bool> finite_ = true;               ///< gradients and weights of this step
};

}  // namespace lockstep::sync
