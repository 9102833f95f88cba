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
#include "lockstep/reduce/either.hpp"

namespace lockstep::reduce {

/// A sum and a share over messages, in the words of node::shared_strips.
template <class T>
class message_strips {
public:
    [[gnu::cold]] message_strips(const bucket& of, collectives::sum_halves halves, tensor::arena& arena)
        : team_{of.team},
          owned_{halves.owned},
          sum_{of.ranks, std::move(halves.sum), of.team, comm::flow::usual_piece, of.sum},
          share_{of.ranks, std::move(halves.share), of.team, comm::flow::usual_piece, of.share},
          work_{arena.reserve<T>(std::max(sum_.program().work_size(), share_.program().work_size()))} {}

    void bind(const tensor::arena& arena) noexcept { scratch_ = arena[work_]; }
    void start_sum(std::span<T> gradient) {
        gradient_ = gradient;
        start(sum_, gradient);
    }
    template <class F>
    void update(std::span<T>, const F& change) const {
        change_blocks<T>(team_, owned_, std::span<const T>{gradient_}, change);
    }
    void start_share(std::span<T> weights) { start(share_, weights); }

    bool poll() { return running_ == nullptr || running_->poll(); }
    bool progress() { return running_ == nullptr || running_->progress(); }
    void finish() {
        if (running_ != nullptr) running_->finish();
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return running_ == nullptr ? comm::pending_operation{} : running_->pending();
    }
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return (sum_.program().sent().elements + share_.program().sent().elements) * sizeof(T);
    }

private:
    void start(comm::operation<T>& next, std::span<T> data) {
        running_ = &next;
        next.start(data, scratch_);
    }

    parallel::team team_;
    parallel::block owned_;
    comm::operation<T> sum_;
    comm::operation<T> share_;
    tensor::slice<T> work_;
    std::span<T> scratch_;
    std::span<T> gradient_;
    comm::operation<T>* running_ = nullptr;
};

/// The same bits for every number of ranks, through shared memory or over messages, there by each algorithm of the
/// bucket that keeps the lane tree. Each rank owns a strip of the bucket and alone keeps the optimizer's state for it;
/// by doubling, for short buckets, every rank owns all of it and nothing is shared. Cost per rank with aligned lanes on
/// a power of two of p ranks: 2 log2(p) messages, 2n(p-1)/p elements (see collectives/tree.hpp for the others); by
/// doubling log2(p) messages, n log2(p) elements; through shared memory no message (see node/shared_strips.hpp). There
/// gradients and weights come from tensor::arena::reserve_shared().
template <class T>
class tree_sum : public either<T, message_strips<T>, node::shared_strips<T>> {
public:
    [[gnu::cold]] tree_sum(const bucket& of, tensor::arena& arena) {
        if (of.memory != nullptr) {
            const auto strips = collectives::tree_strips(of.runs, of.n);
            owned_ = strips[of.ranks.rank()];
            const auto signal = arena.reserve_shared<node::shared_signal>(1);
            this->second_ = std::make_unique<node::shared_strips<T>>(
                node::shared_members{of.memory, of.parts, of.ranks.rank(), signal, of.ranks.what()}, of.runs, strips,
                of.n, of.team, of.adding);
            return;
        }
        auto halves = of.sums.make(of.algorithm, of.ranks.rank(), of.runs, of.n, of.on);
        owned_ = halves.owned;
        replicates_ = of.ranks.size() > 1 && owned_.size() == of.n && halves.share.rounds().empty();
        this->first_ = std::make_unique<message_strips<T>>(of, std::move(halves), arena);
    }

    void bind(const tensor::arena& arena) noexcept {
        if (this->first_) this->first_->bind(arena);
    }
    [[nodiscard]] parallel::block owned() const noexcept { return owned_; }

    void start(std::span<T> gradient, std::uint64_t) {
        gradient_ = gradient;
        this->with([&](auto& strips) { strips.start_sum(gradient); });
    }
    void share(std::span<T> weights) {
        this->with([&](auto& strips) { strips.start_share(weights); });
    }
    [[nodiscard]] std::span<T> sums() const noexcept { return gradient_.subspan(owned_.first, owned_.size()); }
    [[nodiscard]] bool replicates() const noexcept { return replicates_; }

private:
    parallel::block owned_;
    bool replicates_ = false;
    std::span<T> gradient_;
};

}  // namespace lockstep::reduce
