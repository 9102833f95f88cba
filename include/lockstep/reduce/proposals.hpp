// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Averaging what an optimizer proposes on each worker in place of its gradient: around any reducer with workers.
// Models Reducer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/whole_sum.hpp"
#include "lockstep/reduce/worker_fold.hpp"
#include "lockstep/reduce/worker_sum.hpp"

namespace lockstep::reduce {

/// Ranks that share a worker add its lanes first; each of them then lets the optimizer propose, tensor by tensor, and
/// `Inner` does the rest with one array for each worker. A dense step (optim::HasDenseSteps) adds the proposals over
/// the binary tree of workers, the bits of the lane tree where each worker has one lane. Proposals happen where Inner
/// would begin to encode, so a plan without them has nothing of this.
/// Memory beside that of Inner: worker_slot_count numbers for each worker of this rank and each parameter. Cost of a
/// step: what propose() costs; with `sent` also one decoding for each worker of this rank. A dense step sends
/// 2n(p-1)/p numbers.
template <class T, class Inner, optim::Proposes<T> O, class C>
class proposals {
public:
    [[gnu::cold]] proposals(const bucket& of, const C& compressor, tensor::arena& arena)
        : n_{of.n},
          team_{of.team},
          deal_{of.deal},
          speaks_{of.deal.sends(of.ranks.rank())},
          compressor_{compressor},
          inner_{after_the_sum_of_a_worker(of), compressor, arena},
          inside_{worker_sum<T>::make(of, arena)} {
        add_tensors(compressor);
        if constexpr (leaves_sent) inner_.leave_sent();
        std::size_t work = inside_ ? inside_->work_size() : 0;
        if constexpr (has_dense_steps) {
            fold_ = worker_fold::in_order(deal_.own, deal_.workers);
            dense_sum_ =
                std::make_unique<whole_sum<T>>(of.ranks, make_worker_sum(of, of.n, sizeof(T), true), of.team, of.sum);
            work = std::max(work, dense_sum_->work_size());
        }
        work_ = arena.reserve<T>(work);
        state_ = arena.reserve<T>(
            core::checked_product("numbers of proposals", std::size_t{O::worker_slot_count}, own(), of.n));
    }

    /// The optimizer of the plan, and its slots for all of the bucket, which outlive this.
    void propose_with(const O& optimizer, tensor::slots<T> shared) noexcept {
        optimizer_ = &optimizer;
        shared_ = {shared.count() > 0 ? shared[0].data() : nullptr, shared.count(), n_, n_};
    }
    void bind(const tensor::arena& arena) noexcept {
        arena_ = &arena;
        inner_.bind(arena);
    }
    [[nodiscard]] parallel::block owned() const noexcept { return {0, n_}; }

    void start(std::span<T> gradient, std::uint64_t step) {
        gradient_ = gradient;
        step_ = step;
        if (!inside_) return start_proposals();
        stage_ = stage::adding;
        inside_->start(gradient, (*arena_)[work_]);
    }
    bool poll() {
        return advance([](auto& operation) { return operation.poll(); });
    }
    bool progress() {
        return advance([](auto& operation) { return operation.progress(); });
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        if (stage_ == stage::adding) return inside_->pending();
        if constexpr (has_dense_steps)
            if (stage_ == stage::dense) return dense_sum_->pending();
        return inner_.pending();
    }
    void finish() {
        (void)advance([](auto& operation) {
            operation.finish();
            return true;
        });
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        change_blocks<T>(team_, owned(), gradient_.first(n_), change);
    }
    /// Every rank has made the same update: nothing is sent.
    void share(std::span<T>) noexcept {}

    /// In the step that was started last; before the first one, of a step that is not dense.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        std::size_t sent = inside_ ? inside_->bytes() : 0;
        if constexpr (has_dense_steps)
            if (stage_ == stage::dense) return sent + dense_sum_->bytes();
        return sent + inner_.bytes_per_step();
    }
    [[nodiscard]] std::span<T> sums() const noexcept { return gradient_.first(n_); }
    [[nodiscard]] static bool replicates() noexcept { return true; }
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        for (const tensor_part& one : tensors_)
            visit_worker_state(visit, deal_, one.what, (*arena_)[state_], std::size_t{O::worker_slot_count}, n_, set,
                               speaks_, "proposal");
        inner_.visit_state(visit, set);
    }

private:
    static constexpr bool has_dense_steps = optim::HasDenseSteps<O, T>;
    /// Whether Inner writes over the proposals what was sent of them, for it keeps no messages.
    static constexpr bool leaves_sent = optim::SeesMessages<O, T> && requires(Inner & inner) { inner.leave_sent(); };
    enum class stage : unsigned char { adding, dense, inner };

    /// A whole tensor: what a slot belongs to does not depend on the segments of the plan.
    struct tensor_part {
        piece what;
        bool is_dense = false;  // in every step
    };

    [[nodiscard]] std::size_t own() const noexcept { return deal_.own.size(); }
    /// The bucket with workers that no rank shares: their lanes are added here.
    [[nodiscard, gnu::cold]] static bucket after_the_sum_of_a_worker(bucket of) {
        of.deal.lanes_of.clear();
        return of;
    }
    [[gnu::cold]] void add_tensors(const C& compressor) {
        for (const piece& one : deal_.pieces) {
            if (one.offset > 0) {
                tensors_.back().what.count += one.count;
                continue;
            }
            tensor_part next{.what = one};
            next.is_dense = compress::is_dense(compressor, compress::matrix{one.rows, one.columns});
            tensors_.push_back(next);
        }
    }

    /// Goes on as far as step(operation) says that one is over; true when all are.
    template <class Step>
    bool advance(const Step& step) {
        if (stage_ == stage::adding) {
            if (!inside_->advance(step)) return false;
            start_proposals();
        }
        if constexpr (has_dense_steps)
            if (stage_ == stage::dense) return dense_sum_->advance(step);
        return step(inner_);
    }

    void start_proposals() {
        bool is_dense = false;
        if constexpr (has_dense_steps) is_dense = optimizer_->is_dense_step(step_);
        for (std::size_t worker = 0; worker < own(); ++worker)
            for (const tensor_part& one : tensors_) optimizer_->propose(pass_of(worker, one, is_dense || one.is_dense));
        stage_ = is_dense ? stage::dense : stage::inner;
        if constexpr (has_dense_steps)
            if (is_dense) {
                const std::span<T> all = gradient_.first(own() * n_);
                fold_.run(all, n_, team_);
                return dense_sum_->start(all, (*arena_)[work_]);
            }
        inner_.start(gradient_, step_);
        if constexpr (optim::SeesMessages<O, T>) show_messages();
    }
    /// The messages are written, so the proposals are not needed any more: what was sent takes their place. Where all
    /// of a tensor was sent the optimizer goes on as if it had travelled as it is.
    void show_messages() {
        for (std::size_t worker = 0; worker < own(); ++worker) {
            if constexpr (!leaves_sent) {
                const std::span<T> sent = gradient_.subspan(worker * n_, n_);
                std::fill(sent.begin(), sent.end(), T{0});
                inner_.decode_own(worker, sent);
            }
            for (const tensor_part& one : tensors_)
                if (!one.is_dense && !compress::sends_all(compressor_, step_, one.what.from()))
                    optimizer_->sent(pass_of(worker, one, false));
        }
    }
    /// `worker`: of this rank.
    [[nodiscard]] optim::proposal_pass<T> pass_of(std::size_t worker, const tensor_part& one,
                                                  bool is_dense) const noexcept {
        constexpr std::size_t slots = O::worker_slot_count;
        T* const state = (*arena_)[state_].data() + worker * slots * n_;
        return {.values = gradient_.subspan(worker * n_ + one.what.first, one.what.count),
                .own = tensor::slots<T>{state, slots, n_, n_}.part(one.what.first, one.what.count),
                .shared = shared_.part(one.what.first, one.what.count),
                .workers = deal_.workers,
                .share = share_of(deal_.own.first + worker),
                .step = step_,
                .is_dense = is_dense,
                .team = team_};
    }

    /// Rows of a worker in this step over those of all; 1 / W where lengths of lanes are unknown.
    [[nodiscard]] double share_of(std::size_t worker) const noexcept {
        if (deal_.lengths.empty()) return 1 / static_cast<double>(deal_.workers);
        std::size_t own = 0, all = 0;
        for (std::size_t lane = 0; lane < deal_.lengths.size(); ++lane) {
            all += deal_.lengths[lane];
            if (lane / deal_.lanes == worker) own += deal_.lengths[lane];
        }
        return all == 0 ? 0 : static_cast<double>(own) / static_cast<double>(all);
    }

    std::size_t n_;
    parallel::team team_;
    worker_deal deal_;
    bool speaks_;  // of those that share a worker
    C compressor_;
    Inner inner_;
    std::unique_ptr<worker_sum<T>> inside_;  // where ranks share a worker
    std::vector<tensor_part> tensors_;
    worker_fold fold_;
    std::unique_ptr<whole_sum<T>> dense_sum_;
    tensor::slice<T> work_;
    tensor::slice<T> state_;
    const O* optimizer_ = nullptr;
    tensor::slots<const T> shared_;
    const tensor::arena* arena_ = nullptr;
    std::span<T> gradient_;
    std::uint64_t step_ = 0;
    stage stage_ = stage::inner;
};

/// What adds the gradients of a plan: the method of its compressor as it is,
template <class T, class O, class C, class Method>
struct with_proposals {
    using type = Method;
};
/// or around it what the optimizer proposes.
template <class T, class O, class C, class Method>
    requires optim::Proposes<O, T>
struct with_proposals<T, O, C, Method> {
    struct type {
        using reducer = proposals<T, typename Method::reducer, O, C>;
        using memory = typename Method::memory;
        static constexpr bool has_workers = Method::has_workers;

        [[nodiscard]] static reducer make(const bucket& of, const C& compressor, tensor::arena& arena) {
            return {of, compressor, arena};
        }
    };
};

}  // namespace lockstep::reduce
