// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exact averaging: the lane tree as a reduce-scatter, the owner's update, an all-gather of weights. Models Reducer.

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/all_gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/tree.hpp"
#include "lockstep/reduce/concept.hpp"

namespace lockstep::reduce {

/// The same bits for every number of ranks. Each rank owns a strip of the bucket and alone keeps the optimizer's state for it.
/// Cost per rank with aligned lanes on a power of two of p ranks: 2 log2(p) messages, 2n(p-1)/p elements (see comm/tree.hpp for the others).
template <class T>
class tree_sum {
public:
    tree_sum(const bucket& of, tensor::arena& arena)
        : strips_{comm::tree_strips(of.runs, of.n)},
          rank_{of.ranks.rank()},
          sum_{of.ranks, comm::tree_reduce_scatter(rank_, of.runs, of.n, strips_), of.team},
          share_{of.ranks, comm::all_gather(rank_, strips_), of.team},
          work_{arena.reserve<T>(std::max(sum_.program().work_size(), share_.program().work_size()))} {}

    void bind(const tensor::arena& arena) noexcept { scratch_ = arena[work_]; }
    [[nodiscard]] parallel::block owned() const noexcept { return strips_[rank_]; }

    void start(std::span<T> gradient, const core::random_stream&) {
        running_ = &sum_;
        sum_.start(gradient, scratch_);
    }
    void share(std::span<T> weights) {
        running_ = &share_;
        share_.start(weights, scratch_);
    }
    bool poll() { return running_ == nullptr || running_->poll(); }
    void finish() {
        if (running_ != nullptr) running_->finish();
    }

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return (sum_.program().sent().elements + share_.program().sent().elements) * sizeof(T);
    }

private:
    std::vector<parallel::block> strips_;
    std::size_t rank_;
    comm::operation<T> sum_;
    comm::operation<T> share_;
    tensor::slice<T> work_;
    std::span<T> scratch_;
    comm::operation<T>* running_ = nullptr;
};

}  // namespace lockstep::reduce
