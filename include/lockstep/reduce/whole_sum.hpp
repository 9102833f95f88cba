// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A sum over the ranks of a group that all of them get: the two halves of a lane sum, one after the other.
// Tested by tests/mpi/reduce_rounds.cpp.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/reduce/concept.hpp"

namespace lockstep::reduce {

/// The same object again in the next step, without an allocation. Made in the same order on all ranks of the group.
template <class E>
class whole_sum {
public:
    [[gnu::cold]] whole_sum(const comm::group& ranks, collectives::sum_halves halves, parallel::team team,
                            comm::urgency soon)
        : sum_{ranks, std::move(halves.sum), team, comm::flow::usual_piece, soon},
          share_{ranks, std::move(halves.share), team, comm::flow::usual_piece, soon} {}

    /// Elements of scratch.
    [[nodiscard]] std::size_t work_size() const noexcept {
        return std::max(sum_.program().work_size(), share_.program().work_size());
    }
    [[nodiscard]] std::size_t bytes() const noexcept {
        return (sum_.program().sent().elements + share_.program().sent().elements) * sizeof(E);
    }

    /// Seconds on a rank of the group, by these costs.
    [[nodiscard, gnu::cold]] double price(std::size_t rank, const collectives::cost_model& links) const {
        return collectives::price(sum_.program(), rank, sizeof(E), links) +
               collectives::price(share_.program(), rank, sizeof(E), links);
    }

    /// data: the arrays of this rank, side by side; its first one comes to hold the sum.
    void start(std::span<E> data, std::span<E> work) {
        data_ = data;
        work_ = work;
        is_summed_ = false;
        sum_.start(data, work);
    }
    /// Goes on as far as step(operation) says that one is over; true when both are.
    template <class Step>
    bool advance(const Step& step) {
        if (!is_summed_) {
            if (!step(sum_)) return false;
            is_summed_ = true;
            share_.start(data_, work_);
        }
        return step(share_);
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return is_summed_ ? share_.pending() : sum_.pending();
    }

private:
    comm::operation<E> sum_;
    comm::operation<E> share_;
    std::span<E> data_;
    std::span<E> work_;
    bool is_summed_ = true;
};

}  // namespace lockstep::reduce
