// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sums over workers: how a rank adds those that it has, and what adds them over ranks.
// Tested by tests/mpi/reduce_rounds.cpp.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/simd/half.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::reduce {

/// A number whose sum with another is the larger one, so that a schedule of additions finds the maximum. NaN is larger
/// than all numbers, +0 than -0: the order changes no bit.
template <class T>
struct largest {
    T value;
    friend largest operator+(const largest& a, const largest& b) noexcept {
        if (a.value != a.value || b.value != b.value) return {std::numeric_limits<T>::quiet_NaN()};
        if (a.value == b.value) return std::signbit(a.value) ? b : a;
        return a.value > b.value ? a : b;
    }
};

}  // namespace lockstep::reduce

namespace lockstep::comm {
template <class T>
inline constexpr bool is_addable<reduce::largest<T>> = true;
template <>
inline constexpr bool is_addable<simd::float16> = true;
template <>
inline constexpr bool is_addable<simd::bfloat16> = true;
}  // namespace lockstep::comm

namespace lockstep::reduce {

/// The arrays of a round that the workers of this rank have side by side, and how they become those that the schedule
/// adds: one for each node of the tree over workers, or a single one.
struct worker_fold {
    struct action {
        bool adds = true;  ///< else copies
        std::size_t to = 0;
        std::size_t from = 0;
    };
    std::vector<action> actions{};

    /// `own`: the workers of this rank, of `workers`.
    [[nodiscard, gnu::cold]] static worker_fold in_order(parallel::block own, std::size_t workers);
    /// The same into one array.
    [[nodiscard, gnu::cold]] static worker_fold in_any_order(std::size_t own);

    /// `arrays` of n each.
    template <class E>
    void run(std::span<E> arrays, std::size_t n, parallel::team team) const noexcept {
        for (const action& one : actions) {
            const auto from = arrays.subspan(one.from * n, n), to = arrays.subspan(one.to * n, n);
            if (one.adds)
                comm::add(team, to.data(), static_cast<const E*>(from.data()), n);
            else
                std::copy(from.begin(), from.end(), to.begin());
        }
    }

private:
    /// The sum of arrays first .. first + count - 1 in the first of them: both halves of a node, the left one a power
    /// of two.
    [[gnu::cold]] void add(std::size_t first, std::size_t count) {
        if (count <= 1) return;
        const std::size_t left = std::bit_ceil(count) / 2;
        add(first, left);
        add(first + left, count - left);
        actions.push_back({true, first, first + left});
    }
};

/// A sum of n elements over the workers of a bucket, on all of its ranks. in_order: over the binary tree of workers;
/// else of one array for each rank that sends. By doubling for short vectors on a power of two of ranks, else by the
/// tree: the bits are equal. One worker: nothing.
[[nodiscard, gnu::cold]] collectives::sum_halves make_worker_sum(const bucket& of, std::size_t n,
                                                                 std::size_t element_bytes, bool in_order);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION worker_fold worker_fold::in_order(parallel::block own, std::size_t workers) {
    worker_fold out;
    std::size_t from = 0, to = 0;
    for (const auto& node : tensor::cover(own, workers)) {
        out.add(from, node.count);
        if (from != to) out.actions.push_back({false, to, from});
        from += node.count;
        ++to;
    }
    return out;
}

LOCKSTEP_FUNCTION worker_fold worker_fold::in_any_order(std::size_t own) {
    worker_fold out;
    out.add(0, own);
    return out;
}

LOCKSTEP_FUNCTION collectives::sum_halves make_worker_sum(const bucket& of, std::size_t n, std::size_t element_bytes,
                                                          bool in_order) {
    constexpr std::size_t longest_doubling = 8192;
    if (of.deal.workers <= 1 || n == 0)
        return {{0, n}, collectives::schedule{"", true}, collectives::schedule{"", true}};
    std::vector<parallel::block> runs;
    std::size_t senders = 0;
    for (const auto& workers : of.deal.messages) {
        if (in_order)
            runs.push_back(workers);
        else
            runs.push_back({senders, senders + (workers.empty() ? 0U : 1U)});
        senders += workers.empty() ? 0U : 1U;
    }
    const bool doubles = collectives::is_halving(runs) && n * element_bytes <= longest_doubling;
    return collectives::make_lane_sum(doubles ? collectives::sum_algorithm::doubling : collectives::sum_algorithm::tree,
                                      of.ranks.rank(), runs, n, {});
}

#endif

}  // namespace lockstep::reduce
