// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exact averaging: the lane tree as a reduce-scatter, the owner's update, an all-gather of weights. Models Reducer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/node/shared_strips.hpp"
#include "lockstep/reduce/concept.hpp"

namespace lockstep::reduce {

/// The same bits for every number of ranks, through shared memory or over messages, there by each algorithm of the bucket that keeps the
/// lane tree. Each rank owns a strip of the bucket and alone keeps the optimizer's state for it; by doubling, for short buckets, every rank
/// owns all of it and nothing is shared. Cost per rank with aligned lanes on a power of two of p ranks: 2 log2(p) messages, 2n(p-1)/p
/// elements (see collectives/tree.hpp for the others); by doubling log2(p) messages, n log2(p) elements; through shared memory no message (see
/// node/shared_strips.hpp). There gradients and weights come from tensor::arena::reserve_shared().
template <class T>
class tree_sum {
public:
    [[gnu::cold]] tree_sum(const bucket& of, tensor::arena& arena) : team_{of.team} {
        if (of.memory != nullptr) {
            const auto strips = collectives::tree_strips(of.runs, of.n);
            owned_ = strips[of.ranks.rank()];
            const auto signal = arena.reserve_shared<node::shared_signal>(1);
            shared_ = std::make_unique<node::shared_strips<T>>(
                node::shared_members{of.memory, of.parts, of.ranks.rank(), signal, of.ranks.what()}, of.runs, strips, of.n, of.team,
                of.adding);
            return;
        }
        auto halves = of.sums.make(of.algorithm, of.ranks.rank(), of.runs, of.n, of.on);
        owned_ = halves.owned;
        replicates_ = of.ranks.size() > 1 && owned_.size() == of.n && halves.share.rounds().empty();
        messages_ = std::make_unique<over_messages>(of, std::move(halves));
        work_ = arena.reserve<T>(std::max(messages_->sum.program().work_size(), messages_->share.program().work_size()));
    }

    void bind(const tensor::arena& arena) noexcept { scratch_ = arena[work_]; }
    [[nodiscard]] parallel::block owned() const noexcept { return owned_; }

    void start(std::span<T> gradient, std::uint64_t) {
        sum_ = gradient;
        if (shared_) return shared_->start_sum(gradient);
        running_ = &messages_->sum;
        running_->start(gradient, scratch_);
    }
    template <class F>
    void update(std::span<T> weights, const F& change) {
        if (shared_) return shared_->update(weights, change);
        change_blocks<T>(team_, owned_, std::span<const T>{sum_}, change);
    }
    void share(std::span<T> weights) {
        if (shared_) return shared_->start_share();
        running_ = &messages_->share;
        running_->start(weights, scratch_);
    }
    bool poll() { return shared_ ? shared_->poll() : running_ == nullptr || running_->poll(); }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return shared_ ? shared_->pending() : running_ == nullptr ? comm::pending_operation{} : running_->pending();
    }
    bool progress() { return shared_ ? shared_->progress() : running_ == nullptr || running_->progress(); }
    void finish() {
        if (shared_) return shared_->finish();
        if (running_ != nullptr) running_->finish();
    }

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        if (shared_) return 0;
        return (messages_->sum.program().sent().elements + messages_->share.program().sent().elements) * sizeof(T);
    }

    [[nodiscard]] std::span<T> sums() const noexcept { return sum_.subspan(owned_.first, owned_.size()); }
    [[nodiscard]] bool replicates() const noexcept { return replicates_; }
    /// Nothing outlives a step.
    template <class Visitor>
    void visit_state(Visitor&&, std::size_t) const noexcept {}

private:
    struct over_messages {
        comm::operation<T> sum;
        comm::operation<T> share;
        [[gnu::cold]] over_messages(const bucket& of, collectives::sum_halves halves)
            : sum{of.ranks, std::move(halves.sum), of.team, comm::flow::usual_piece, of.sum},
              share{of.ranks, std::move(halves.share), of.team, comm::flow::usual_piece, of.share} {}
    };

    parallel::team team_;
    parallel::block owned_;
    bool replicates_ = false;
    std::unique_ptr<over_messages> messages_;  // one of the two
    std::unique_ptr<node::shared_strips<T>> shared_;
    tensor::slice<T> work_;
    std::span<T> scratch_;
    std::span<T> sum_;
    comm::operation<T>* running_ = nullptr;
};

}  // namespace lockstep::reduce
