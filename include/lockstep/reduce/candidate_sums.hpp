// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The reductions among the candidates of compress::adaptive for one bucket, around all of which is one residual.
// Tested by tests/equivalence/adaptive.cpp.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/parts/candidate.hpp"
#include "lockstep/core/owned_list.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/rounds.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::reduce {

/// Each of them sums the bucket as `rounds` does. The residual is that of messages: one array of the bucket for each
/// worker of this rank. What a reduction keeps on all ranks alike, such as Q of PowerSGD, stays as it is while others
/// are chosen. Memory for each: the rounds of one reducer, without a residual.
template <class T>
class candidate_sums {
    template <class R>
    using sum_of = rounds<T, compress::error_feedback<R>>;
    using any_sum = std::variant<sum_of<compress::candidate::one_sum>, sum_of<compress::candidate::two_sums>>;

public:
    /// `residual`: that of messages.
    [[gnu::cold]] candidate_sums(const bucket& of, const std::vector<compress::candidate>& candidates,
                                 tensor::slice<T> residual, tensor::arena& arena) {
        for (std::size_t which = 0; which < candidates.size(); ++which)
            candidates[which].with_reduction([&](const auto& reduction) {
                using sum = sum_of<std::remove_cvref_t<decltype(reduction)>>;
                bucket seen = of;
                if (reduction.sees_whole_tensors()) seen.deal.pieces = whole_tensors(of.deal.pieces);
                sums_.add(std::in_place_type<sum>, seen, compress::error_feedback{reduction}, arena, &residual);
                numbers_.push_back(which + 1);
            });
    }

    void bind(const tensor::arena& arena) noexcept {
        for (std::size_t sum = 0; sum < size(); ++sum) with(sum, [&](auto& one) { one.bind(arena); });
    }
    [[nodiscard]] std::size_t size() const noexcept { return sums_.size(); }
    /// Which of them a candidate is, from 1 on; size() for a compressor.
    [[nodiscard]] std::size_t find(std::size_t candidate) const noexcept {
        std::size_t sum = 0;
        while (sum < size() && numbers_[sum] != candidate) ++sum;
        return sum;
    }
    [[nodiscard]] std::size_t candidate(std::size_t sum) const noexcept { return numbers_[sum]; }
    /// f(rounds), which gives the same type for all of them.
    template <class F>
    decltype(auto) with(std::size_t sum, const F& f) {
        return std::visit(f, sums_[sum]);
    }
    template <class F>
    decltype(auto) with(std::size_t sum, const F& f) const {
        return std::visit(f, sums_[sum]);
    }
    /// What they keep on all ranks alike.
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        for (std::size_t sum = 0; sum < size(); ++sum)
            with(sum, [&](const auto& one) { one.visit_shared_state(visit, set, numbers_[sum]); });
    }

private:
    [[nodiscard, gnu::cold]] static std::vector<piece> whole_tensors(const std::vector<piece>& segments) {
        std::vector<piece> out;
        for (piece one : segments) {
            if (one.offset != 0) continue;
            one.count = one.rows * one.columns;
            out.push_back(one);
        }
        return out;
    }

    core::owned_list<any_sum> sums_;
    std::vector<std::size_t> numbers_;  // of each: the candidate that it is
};

}  // namespace lockstep::reduce
