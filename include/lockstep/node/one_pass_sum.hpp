// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The lane tree added in one pass over memory, where all its leaves can be read: for ranks that share it.
// Tested by tests/unit/node/shared_reduce.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/collectives/reduction_tree.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::node {

namespace detail {

/// to[k][i] = a[i] + b[i] for every k. What is written is what is read, or disjoint.
template <class T>
inline void add_into(const T* a, const T* b, std::span<T* const> to, std::size_t n) noexcept {
    constexpr std::size_t w = simd::width<T>;
    std::size_t i = 0;
    for (; i + 4 * w <= n; i += 4 * w) {
        const auto v0 = simd::load(a + i) + simd::load(b + i);
        const auto v1 = simd::load(a + i + w) + simd::load(b + i + w);
        const auto v2 = simd::load(a + i + 2 * w) + simd::load(b + i + 2 * w);
        const auto v3 = simd::load(a + i + 3 * w) + simd::load(b + i + 3 * w);
        for (T* out : to) {
            simd::store(out + i, v0);
            simd::store(out + i + w, v1);
            simd::store(out + i + 2 * w, v2);
            simd::store(out + i + 3 * w, v3);
        }
    }
    for (; i < n; ++i) {
        const T sum = a[i] + b[i];
        for (T* out : to) out[i] = sum;
    }
}

}  // namespace detail

/// The additions of the tree over the ranks' lanes, in their order.
class one_pass_plan {
public:
    /// A vector that a rank provides: number `slot` of the nodes of a rank's lanes.
    struct leaf {
        std::size_t rank;
        std::size_t slot;
    };

    /// lanes[r] is the run of lanes of rank r, as in tree_reduce_scatter().
    [[gnu::cold]] explicit one_pass_plan(std::span<const parallel::block> lanes);

    [[nodiscard]] std::span<const leaf> leaves() const noexcept { return leaves_; }
    /// Vectors that the rank with the most of them provides.
    [[nodiscard]] std::size_t most_vectors() const noexcept {
        std::size_t most = 1;
        for (const leaf& vector : leaves_) most = std::max(most, vector.slot + 1);
        return most;
    }

protected:
    struct source {
        bool is_leaf;
        std::size_t number;
    };
    struct addition {
        source left;
        source right;
        std::size_t partial;
    };
    std::vector<leaf> leaves_;
    std::vector<addition> additions_;
    std::size_t partials_ = 0;
};

/// The sums of T. Element i of the result has the bits that one rank would get.
/// Cost for n elements: each leaf is read once and each output written once; partial sums stay in the first-level
/// cache.
template <class T>
class one_pass_sum : public one_pass_plan {
public:
    using one_pass_plan::one_pass_plan;

    /// Elements of scratch for each thread.
    [[nodiscard]] std::size_t scratch_size() const noexcept { return partials_ * block; }

    /// to[k][i - origin] = sum over the tree of from[leaf][i], i in part. An output is one of the leaves or disjoint
    /// from all of them.
    [[gnu::noinline]] void operator()(std::span<const T* const> from, std::span<T* const> to, parallel::block part,
                                      std::span<T> scratch, std::size_t origin = 0) const noexcept {
        constexpr std::size_t most = 16;  // outputs at a time
        const std::size_t step = additions_.size() == 1 ? part.size() : block;
        for (std::size_t at = part.first; at < part.last; at += step) {
            const std::size_t n = std::min(step, part.last - at);
            const auto values = [&](const source& operand) -> const T* {
                return operand.is_leaf ? from[operand.number] + at : scratch.data() + operand.number * block;
            };
            for (std::size_t k = 0; k + 1 < additions_.size(); ++k) {
                T* const partial = scratch.data() + additions_[k].partial * block;
                detail::add_into<T>(values(additions_[k].left), values(additions_[k].right), {&partial, 1}, n);
            }
            T* outputs[most];
            // Outputs beyond the first sixteen are copies of the first: by then the leaves may be overwritten.
            const std::size_t first = std::min(most, to.size());
            for (std::size_t k = 0; k < first; ++k) outputs[k] = to[k] + (at - origin);
            if (!additions_.empty()) {
                detail::add_into<T>(values(additions_.back().left), values(additions_.back().right), {outputs, first},
                                    n);
            } else {
                for (std::size_t k = 0; k < first; ++k)
                    if (outputs[k] != from[0] + at) std::copy_n(from[0] + at, n, outputs[k]);
            }
            for (std::size_t k = first; k < to.size(); ++k)
                std::copy_n(to[0] + (at - origin), n, to[k] + (at - origin));
        }
    }

    /// The same on all threads; `scratch` is theirs, one after the other.
    void operator()(parallel::team team, std::span<const T* const> from, std::span<T* const> to, parallel::block part,
                    std::span<T> scratch) const noexcept {
        const auto threads = static_cast<std::size_t>(team.threads);
        if (threads <= 1 || part.size() <= 16384) return (*this)(from, to, part, scratch);
        parallel::on_each_thread(team, [&](std::size_t thread) {
            const auto piece = parallel::split(part.size(), threads, thread, collectives::strip_grain);
            (*this)(from, to, {part.first + piece.first, part.first + piece.last},
                    scratch.subspan(thread * scratch_size(), scratch_size()));
        });
    }

private:
    static constexpr std::size_t block = 4096 / sizeof(T);
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION one_pass_plan::one_pass_plan(std::span<const parallel::block> lanes) {
    const collectives::lane_tree tree{lanes};
    std::vector<source> held;  // children stand before their parents, the left one first: a stack
    std::size_t depth = 0;
    for (const auto& node : tree.nodes()) {
        if (node.leaf()) {
            held.push_back({true, leaves_.size()});
            leaves_.push_back({node.rank, node.slot});
            continue;
        }
        const source right = held.back();
        held.pop_back();
        const source left = held.back();
        held.pop_back();
        depth -= (left.is_leaf ? 0U : 1U) + (right.is_leaf ? 0U : 1U);
        additions_.push_back({left, right, depth});
        held.push_back({false, depth++});
        partials_ = std::max(partials_, depth);
    }
    // The last sum goes to the outputs, and the only one of two leaves needs no partial sum.
    if (additions_.size() <= 1) partials_ = 0;
}

#endif

}  // namespace lockstep::node
