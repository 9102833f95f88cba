// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sum of an array of each worker, over all ranks.
// Tested by tests/equivalence/local_sgd.cpp.

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/tree_sum.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

/// Arrays of n numbers, those of the workers of this rank side by side, and then their sum over the tree of workers.
/// Cost for each rank: 2 n (p-1)/p numbers. With one worker there is nothing to add.
template <class T>
class worker_mean {
public:
    /// Collective, except for one worker.
    template <class Plan>
    [[gnu::cold]] worker_mean(const setup<Plan>& from, std::size_t n)
        : all_{from.all}, team_{from.team}, grid_{from.grid}, n_{n} {
        if (grid_.workers < 2) return;
        const std::size_t before = from.arena.bytes();
        reduce::bucket of{.ranks = from.all.named("mean of workers"),
                          .runs = {},
                          .lanes = grid_.lanes,
                          .n = n,
                          .team = team_,
                          .memory = from.memory};
        of.deal.lanes = grid_.worker_lanes();
        for (std::size_t rank = 0; rank < grid_.ranks; ++rank) {
            of.runs.push_back(grid_.lanes_of(rank));
            of.parts.push_back(rank);
        }
        if (from.memory == nullptr) from.rule.choose(of, sizeof(T), 1.0);
        sum_.emplace(of, from.arena);
        arrays_ = from.arena.template reserve_shared<T>(
            core::checked_product("numbers of workers", reduce::gradient_vectors(of), n));
        message_bytes_ = from.arena.bytes() - before;
    }

    /// Memory is there: once, before the first step.
    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        if (sum_) sum_->bind(arena);
    }
    /// There are several workers.
    [[nodiscard]] explicit operator bool() const noexcept { return sum_.has_value(); }
    /// Of the workers of this rank; of the one that it shares with others, and what it adds beside it.
    [[nodiscard]] std::span<T> arrays() const noexcept { return (*arena_)[arrays_]; }
    /// The first of them becomes the sum of what all workers have put there, divided by `by`, on every rank.
    /// Collective.
    void add(T by, step_times& times) {
        const auto begin = step_times::clock::now();
        const std::span<T> sum = arrays().first(n_);
        reduce::add_workers(arrays(), n_, grid_.own_lanes(), grid_.lanes, grid_.worker_lanes());
        sum_->start(arrays(), 0);
        finish();
        sum_->update(sum, [&](parallel::block part, std::span<const T> strip) noexcept {
            for (std::size_t i = 0; i < strip.size(); ++i) sum[part.first + i] = strip[i] / by;
        });
        sum_->share(sum);
        finish();
        times.waited_at_the_end(begin);
    }
    /// Sent by this rank for one sum.
    [[nodiscard]] std::size_t bytes() const noexcept { return sum_ ? sum_->bytes_per_step() : 0; }
    /// Memory for the arrays and their sum.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }

private:
    void finish() {
        comm::wait_through(all_.aborts(), sum_->pending(), [&] { return sum_->progress(); });
    }

    comm::group all_;
    parallel::team team_;
    partition::grid grid_;
    std::size_t n_;
    std::optional<reduce::tree_sum<T>> sum_;
    tensor::slice<T> arrays_;
    std::size_t message_bytes_ = 0;
    const tensor::arena* arena_ = nullptr;
};

}  // namespace lockstep::sync
