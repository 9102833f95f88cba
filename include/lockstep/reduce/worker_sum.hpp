// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The exact sum of a worker that several ranks share, on each of them, before they act as one.
// Tested by tests/mpi/reduce_worker_sum.cpp.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/node/shared_strips.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/whole_sum.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::reduce {

/// Over the worker's own lane tree, by messages or, where deal.memory has arrays of its ranks, through these: the same
/// bits. Made in the same order on all of them. Cost for each of q ranks, n numbers: 2 n (q-1)/q of them sent; through
/// shared memory no message (node/shared_strips.hpp).
template <class T>
class worker_sum {
public:
    /// Null where this rank shares no worker.
    [[nodiscard, gnu::cold]] static std::unique_ptr<worker_sum> make(const bucket& of, tensor::arena& arena) {
        return of.deal.is_shared() ? std::make_unique<worker_sum>(of, arena) : nullptr;
    }
    [[gnu::cold]] worker_sum(const bucket& of, tensor::arena& arena) {
        const worker_deal& deal = of.deal;
        const std::size_t rank = deal.sharing.rank();
        if (deal.memory == nullptr) {
            messages_ = std::make_unique<whole_sum<T>>(
                deal.sharing,
                collectives::make_lane_sum(collectives::sum_algorithm::tree, rank, deal.lanes_of, of.n, {}), of.team,
                of.sum);
            return;
        }
        const auto signal = arena.reserve_shared<node::shared_signal>(1);
        strips_ = std::make_unique<node::shared_strips<T>>(
            node::shared_members{deal.memory, deal.parts, rank, signal, deal.sharing.what()}, deal.lanes_of,
            collectives::tree_strips(deal.lanes_of, of.n), of.n, of.team);
    }

    /// Numbers of scratch.
    [[nodiscard]] std::size_t work_size() const noexcept { return messages_ ? messages_->work_size() : 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return messages_ ? messages_->bytes() : 0; }

    /// `gradient`: all arrays of this rank, the first of which comes to hold the sum. Until the end no other code
    /// touches them.
    void start(std::span<T> gradient, std::span<T> work) {
        if (messages_) return messages_->start(gradient, work);
        gradient_ = gradient;
        is_summed_ = false;
        strips_->start_sum(gradient);
    }
    /// Goes on as far as step(operation) says that one is over; true when all are.
    template <class Step>
    bool advance(const Step& step) {
        if (messages_) return messages_->advance(step);
        if (!is_summed_) {
            if (!step(*strips_)) return false;
            is_summed_ = true;
            // A strip of all arrays is read by its owner alone, so the sum can go where they were.
            strips_->update(gradient_, [&](parallel::block part, std::span<const T> sum) noexcept {
                std::ranges::copy(sum, gradient_.subspan(part.first, part.size()).begin());
            });
            strips_->start_share();
        }
        return step(*strips_);
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return messages_ ? messages_->pending() : strips_->pending();
    }

private:
    std::unique_ptr<whole_sum<T>> messages_;  // one of the two
    std::unique_ptr<node::shared_strips<T>> strips_;
    std::span<T> gradient_;
    bool is_summed_ = true;
};

}  // namespace lockstep::reduce
