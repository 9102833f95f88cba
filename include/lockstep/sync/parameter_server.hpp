// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Asynchronous and stale-synchronous training over messages: a rank that has a gradient pushes it, and waits for the
// gradients of no other one.
// Tested by tests/equivalence/parameter_server.cpp.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/sync/arrivals.hpp"
#include "lockstep/sync/owner_updates.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::sync {

/// A parameter server whose strips lie on all ranks, each of which is a learner, too: in fit() a rank takes a
/// minibatch, computes its gradient with the weights that it has read last, pushes it, and reads the newest weights.
/// Gradients become updates in the order in which they come,
///
///     w(t+1) = w(t) - rate(t) g(w(v)),   v <= t the version that the learner had read:
///
/// asynchronous SGD (Downpour; Dean et al., NeurIPS 2012), with minibatches that are dealt to the learner that is free.
/// With `bound` = s it is stale-synchronous (Ho et al., NeurIPS 2013): no learner begins a gradient while it has sent
/// more than s more than the slowest since the last barrier. With `ranks_per_learner` = g each g ranks that follow each
/// other are one learner, such as those of a node: they compute one gradient, as in a synchronous step, and their first
/// one pushes and pulls for all: a hierarchical parameter server, with fewer versions under way and less traffic
/// between nodes. At the end of an epoch, of a fit() and after each
/// `drain_every` updates all ranks meet: nothing is under way then, observers of epochs hear of it, and checkpoints are
/// those of a synchronous run. Events of steps come then, too, one for each update; an observer that looks at weights
/// hears of the last one alone, and checkpoint saves after it what was due before. Which gradient came when depends
/// on the machine; the trainer writes it down (arrivals()), and sync::asynchronous{.replay = ..} with `.workers = 1`
/// repeats the run, bit for bit, on any number of ranks. step() is a synchronous step. A rank that computes
/// serves others between two layers: one that is long in a layer, or in read(), holds them up. With
/// plan::progress_thread it serves at any time; where a learner has several ranks, in read() and between layers. Cost:
/// a gradient over the whole minibatch on each learner, for which it has room beside that of a synchronous step; n
/// numbers out and n in for each gradient, and n to each further rank of the learner. Not with a compressor,
/// a partition, clipping, optimizers that need norms, factors, and layers with running statistics. Errors: those of
/// a step, on all ranks; a loss that makes no sense is an error of its learner and names the minibatch, and two
/// learners may have one each.
struct parameter_server {
    std::optional<std::uint64_t> bound{};  ///< of the stale-synchronous; without one learners never wait
    std::uint64_t drain_every = 0;         ///< updates; 0: all ranks meet at the end of an epoch alone
    std::size_t ranks_per_learner = 1;     ///< the last learner has what is left; bits follow from the arrivals alone

    static constexpr std::string_view name = "parameter_server";
    static constexpr bool is_measured = true;

    [[nodiscard]] std::string settings() const {
        return core::text("bound=", bound ? core::text(*bound) : std::string{"none"}, " drain_every=", drain_every);
    }
    /// Has to be alike on all ranks; a resume may change it.
    [[nodiscard]] std::string machine_settings() const { return core::text("ranks_per_learner=", ranks_per_learner); }
    /// Throws core::error.
    void check() const {
        if (ranks_per_learner == 0)
            core::fail("parameter_server has ranks_per_learner = 0", "give 1, or the ranks of a node");
    }

    template <class Types>
    class strategy : public owner_updates<Types> {
        using base = owner_updates<Types>;
        using T = typename Types::value_type;
        using stage = typename base::stage;

    public:
        template <class Plan>
        [[gnu::cold]] explicit strategy(const setup<Plan>& from)
            : base{from}, team_{from.team}, ranks_per_learner_{from.plan.sync.ranks_per_learner} {}

        /// As that of a learner, which is a trainer of its ranks: commit() puts the gradient into `gradient` and leaves
        /// the weights as they are, or into the place of the weights where that is empty; serve(self) is called between
        /// layers.
        void learns_for(std::span<T> gradient, void* self, void (*serve)(void* self)) noexcept {
            gradient_ = gradient;
            self_ = self;
            serve_ = serve;
        }
        [[nodiscard]] layer_hook weights_needed() noexcept {
            if (serve_ == nullptr) return base::weights_needed();
            return {this, [](void* of, std::size_t layer) {
                        auto& learner = *static_cast<strategy*>(of);
                        learner.base::weights_needed()(layer);
                        learner.serve_(learner.self_);
                    }};
        }
        template <class Others>
        void gradient_ready(std::size_t layer, std::uint64_t step, const Others& others) {
            base::gradient_ready(layer, step, others);
            if (serve_ != nullptr) serve_(self_);
        }
        /// Other ranks of the learner may not have come so far because none has served them yet.
        [[nodiscard]] double reduce_loss(step_sums& losses, std::uint64_t step) {
            if (serve_ == nullptr) return base::reduce_loss(losses, step);
            if (!this->overlaps_) this->queue_.start_all(step);
            return this->agree_on_loss(losses, [&] {
                this->queue_.poll();
                serve_(self_);
            });
        }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            if (serve_ != nullptr) {
                take_gradient(weights, step);
                return true;
            }
            add_arrival({.learner = 0, .version = step}, step);
            return base::commit(weights, rate, step);
        }
        /// As a server: makes update `step` of the numbers of a strip, which begins at number `first`. False: a number
        /// is not finite. A trainer of one rank has slots for all of them.
        [[nodiscard]] bool update_strip(std::span<T> strip, std::size_t first, std::span<const T> gradient, double rate,
                                        std::uint64_t step) noexcept {
            for (std::size_t bucket = 0; bucket < this->queue_.size(); ++bucket) {
                const std::size_t offset = this->queue_[bucket].range.first;
                const tensor::slots<T> slots = this->slots_of(this->queue_, bucket);
                for (const update_run& run : this->owned_[bucket].runs) {
                    const std::size_t begin = std::max(run.first, first),
                                      end = std::min(run.first + run.count, first + strip.size());
                    if (begin >= end) continue;
                    parallel::for_blocks(team_, end - begin, 4096, [&](parallel::block part) noexcept {
                        const std::size_t at = begin + part.first;
                        optim::update_pass<T> pass{.weights = strip.subspan(at - first, part.size()),
                                                   .gradient = gradient.subspan(at - first, part.size()),
                                                   .slots = slots.part(at - offset, part.size()),
                                                   .rate = rate,
                                                   .step = step,
                                                   .decays = run.decays};
                        if constexpr (optim::needs_tensors<typename Types::optimizer>)
                            pass.tensor = run.place.from(at - run.first);
                        if (!this->update_part(pass, run.tensor)) [[unlikely]]
                            this->finite_.store(false, std::memory_order_relaxed);
                    });
                }
            }
            return this->finite_.exchange(true, std::memory_order_relaxed);
        }

        /// Update `step` has been made of this gradient.
        void add_arrival(const arrival& one, std::uint64_t step) {
            const std::uint64_t minibatch = one.minibatch == step ? arrival::own_minibatch : one.minibatch;
            for (const std::uint64_t number :
                 {one.learner, one.version, std::bit_cast<std::uint64_t>(one.time), minibatch})
                arrivals_.push_back(number);
        }
        /// Of all steps of the run so far.
        [[nodiscard]] arrival_list arrivals() const {
            arrival_list out;
            for (std::size_t i = 0; i < arrivals_.size(); i += in_arrival)
                out.entries.push_back({.learner = arrivals_[i],
                                       .version = arrivals_[i + 1],
                                       .time = std::bit_cast<double>(arrivals_[i + 2]),
                                       .minibatch = arrivals_[i + 3]});
            return out;
        }
        /// Pushed, pulled and handed on by this rank in a fit(), the mean over many steps and ranks. Sums inside
        /// learners, by messages where they have no shared memory, are not among them.
        [[nodiscard]] std::size_t bytes_per_step() const noexcept {
            const std::size_t ranks = this->all_.size(), inside = std::min(ranks_per_learner_, ranks) - 1;
            return Types::network::parameters_here * sizeof(T) * (2 * (ranks - 1) + inside * ranks) / (ranks * ranks);
        }
        /// Of a synchronous step, such as that of step(), and of a learner.
        [[nodiscard]] std::size_t bytes_of(std::uint64_t) const noexcept { return base::bytes_per_step(); }

        void prepare_state(std::uint64_t steps) { arrivals_.resize(in_arrival * steps); }
        template <class Visitor>
        void visit_state(Visitor&& visit) {
            base::visit_state(visit);
            show(visit, arrivals_);
        }
        template <class Visitor>
        void visit_state_after(std::uint64_t steps, std::span<T>, Visitor&& visit) {
            base::visit_state(visit);
            later_.resize(in_arrival * steps);
            show(visit, later_);
        }

        /// What makes the gradients of a fit(), made by its first one.
        [[nodiscard]] std::shared_ptr<void>& learner() noexcept { return learner_; }

    private:
        static constexpr std::size_t in_arrival = 4;

        template <class Visitor>
        void show(Visitor&& visit, std::vector<std::uint64_t>& numbers) const {
            if (numbers.empty()) return;
            visit(tensor::state_part<std::uint64_t>{
                .role = "arrivals", .numbers = std::span{numbers}, .speaks = this->all_.rank() == 0});
        }
        /// And serves meanwhile.
        void wait_for(const typename base::queue::entry& one) {
            comm::backoff waiting{this->queue_.among_all(one.reducer.pending())};
            for (this->queue_.poll(); one.state != stage::summed; this->queue_.poll()) {
                serve_(self_);
                waiting.wait(this->all_.aborts());
            }
        }
        void take_gradient(std::span<T> weights, std::uint64_t step) {
            auto& buckets = this->queue_;
            const std::span<T> to = gradient_.empty() ? weights : gradient_;
            for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
                auto& one = buckets[bucket];
                if (one.state != stage::summed) wait_for(one);
                one.reducer.finish();
                const std::span<T> here = to.subspan(one.range.first, one.range.count);
                one.reducer.update(here, [&](parallel::block part, std::span<const T> sum) noexcept {
                    std::ranges::copy(sum, here.subspan(part.first).begin());
                });
                buckets.share(bucket, to);
            }
            buckets.completes(step + 1);
            buckets.wait_all();
        }

        parallel::team team_;
        std::size_t ranks_per_learner_;
        std::span<T> gradient_{};
        void* self_ = nullptr;
        void (*serve_)(void*) = nullptr;
        std::vector<std::uint64_t> arrivals_, later_;  // learner, version, time and minibatch of each update
        std::shared_ptr<void> learner_;
    };
};

static_assert(StrategyChoice<parameter_server>);

}  // namespace lockstep::sync
