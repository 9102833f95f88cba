// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which rank adds which part of the sum of each tensor, and how all ranks finish the sums alike: equal bits for any
// strips.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/collectives/reduction_tree.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::sync {

/// A part of one tensor, which one rank adds up.
struct norm_strip {
    std::size_t tensor = 0;
    parallel::block numbers{};  ///< counted from the start of the tensor
};

/// Sums over the numbers of each tensor, along the tree of tensor::cover() over their index:
///
///     strips       rank 0        | rank 1
///     numbers      0 1 2 3 4 5 6 | 7 8 9        rank 0 adds the nodes 0-3, 4-5, 6; rank 1 adds 7 and 8-9: one slot for
///     each
///
/// The slots of a rank are neighbours, so an all-gather brings every slot to every rank; each finishes the tree with
/// the same additions. A strip of m numbers has at most 2 log2(m) slots.
class norm_tree {
public:
    /// Some numbers of a tensor, in one slot.
    struct node {
        norm_strip part;
        std::size_t slot = 0;
    };

    /// `sizes`: numbers of each tensor. `strips[r]`: what rank r adds. Throws core::error where they are no partition
    /// of all tensors.
    [[gnu::cold]] norm_tree(std::span<const std::size_t> sizes, const std::vector<std::vector<norm_strip>>& strips);

    /// The slots of each rank.
    [[nodiscard]] const std::vector<parallel::block>& slots() const noexcept { return slots_; }
    /// The nodes of a rank, strip after strip.
    [[nodiscard]] std::span<const node> nodes(std::size_t rank) const noexcept {
        return std::span{nodes_}.subspan(slots_[rank].first, slots_[rank].size());
    }
    /// The sum of a tensor from the values of all slots, which are `stride` numbers apart.
    [[nodiscard]] double sum(std::size_t tensor, const double* values, std::size_t stride = 1) const noexcept;

private:
    static constexpr std::size_t add = static_cast<std::size_t>(-1);
    static constexpr std::size_t deepest = 65;

    std::vector<parallel::block> slots_;
    std::vector<node> nodes_;
    std::vector<std::size_t> steps_;     // a slot to be pushed, or `add` for the two that were pushed last
    std::vector<parallel::block> sums_;  // the steps of each tensor
};

/// What each member of a group adds of n numbers: the strips that they own, or equal parts where each of them owns all.
[[nodiscard, gnu::cold]] std::vector<parallel::block> distinct_strips(std::vector<parallel::block> owned,
                                                                      std::size_t n);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION norm_tree::norm_tree(std::span<const std::size_t> sizes,
                                       const std::vector<std::vector<norm_strip>>& strips) {
    // Of each tensor: its strips, and the slot of their first node.
    std::vector<std::vector<parallel::block>> runs(sizes.size());
    std::vector<std::vector<std::size_t>> first_slots(sizes.size());
    for (const auto& of_rank : strips) {
        const std::size_t first = nodes_.size();
        for (const norm_strip& strip : of_rank) {
            runs[strip.tensor].push_back(strip.numbers);
            first_slots[strip.tensor].push_back(nodes_.size());
            for (const tensor::subtree& part : tensor::cover(strip.numbers, sizes[strip.tensor]))
                nodes_.push_back({{strip.tensor, {part.first, part.first + part.count}}, nodes_.size()});
        }
        // A rank that adds nothing has a slot as well: who has the norms knows that all ranks have come to them.
        if (nodes_.size() == first) nodes_.push_back({{}, first});
        slots_.push_back({first, nodes_.size()});
    }
    for (std::size_t of = 0; of < sizes.size(); ++of) {
        const std::size_t begin = steps_.size();
        const collectives::lane_tree tree{runs[of]};
        if (tree.total() != sizes[of])
            core::fail(
                core::text("the strips of tensor ", of, " have ", tree.total(), " of its ", sizes[of], " numbers"),
                "give each number to one rank");
        // Children stand before their parents, the left one first.
        for (const auto& one : tree.nodes()) steps_.push_back(one.leaf() ? first_slots[of][one.rank] + one.slot : add);
        sums_.push_back({begin, steps_.size()});
    }
}

LOCKSTEP_FUNCTION double norm_tree::sum(std::size_t tensor, const double* values, std::size_t stride) const noexcept {
    std::array<double, deepest> held{};
    std::size_t top = 0;
    for (std::size_t at = sums_[tensor].first; at < sums_[tensor].last; ++at) {
        if (steps_[at] != add) {
            held[top++] = values[steps_[at] * stride];
        } else {
            --top;
            held[top - 1] += held[top];
        }
    }
    return held[0];
}

LOCKSTEP_FUNCTION std::vector<parallel::block> distinct_strips(std::vector<parallel::block> owned, std::size_t n) {
    const bool all_own_all = std::ranges::all_of(owned, [&](const parallel::block& one) { return one.size() == n; });
    for (std::size_t member = 0; all_own_all && member < owned.size(); ++member)
        owned[member] = parallel::split(n, owned.size(), member, 64);
    return owned;
}

#endif

}  // namespace lockstep::sync
