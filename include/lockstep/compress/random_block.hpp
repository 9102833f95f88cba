// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A random block of neighbouring elements, the same for all workers: models Reduction.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/shared_subset.hpp"

namespace lockstep::compress {

/// Random block with a seed that all ranks share (Vogels, Karimireddy, Jaggi, NeurIPS 2019, appendix): k = max(1,
/// ceil(ratio n)) neighbouring elements, from a place that is drawn anew in each step and for each vector, are added
/// over workers, and nothing else is sent. The first of n elements follows the last one, so that each has the chance
/// k/n; a block that never runs over the end, as in the published code, favours the middle. E|v - C(v)|^2 = (1 - k/n)
/// |v|^2. Linear: what is decoded of a sum of messages is the sum of what is decoded of each. A copy of k numbers where
/// random_k picks them one by one; but neighbours come and go together, which costs accuracy in the published results.
/// unbiased: each element times n/k, so that the expectation is v. Else biased: it wants error_feedback around it,
/// which refuses the other. Elements: k, one ordered sum. Tensors of one extent are added as they are. Segments of the
/// plan are vectors of their own. No state.
struct random_block {
    double ratio = 0.01;
    bool unbiased = false;

    static constexpr std::string_view name = "random_block";
    static constexpr compress::traits traits{.dense_vectors = true};
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array rounds{algebra::ordered_sum};

    [[nodiscard]] std::string settings() const { return core::text("ratio=", ratio, " unbiased=", unbiased); }

    /// Throws core::error unless 0 < ratio <= 1.
    void check() const { check_share(name, "ratio", ratio); }
    void check_feedback() const { detail::check_subset_feedback(*this); }

    [[nodiscard]] reduction_sizes<1> sizes(const matrix& shape, std::size_t) const noexcept {
        return {.elements = {share_of(ratio, shape.size())}};
    }
    template <class T>
    void encode(round_number<0>, const worker_pass<T>& in, std::span<T> out) const noexcept {
        detail::encode_subset(*this, in, out);
    }
    template <class T>
    void finish(const shared_pass<T>& all, std::span<const T> result, std::span<T> mean) const noexcept {
        detail::finish_subset(*this, all, result, mean);
    }
    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const T> elements, T scale, std::span<T> sum) const noexcept {
        detail::decode_own_subset(*this, in, elements, scale, sum);
    }

    /// Calls f(i, k, chances) for the elements of the block.
    template <class F>
    void each(std::size_t n, const core::random_stream& random, const F& f) const noexcept {
        const std::size_t k = share_of(ratio, n);
        if (k == 0) return;
        const double chances = static_cast<double>(n) / static_cast<double>(k);
        const auto first = static_cast<std::size_t>(random.below(n, 0));
        const std::size_t before_end = std::min(k, n - first);
        for (std::size_t j = 0; j < before_end; ++j) f(first + j, j, chances);
        for (std::size_t j = before_end; j < k; ++j) f(j - before_end, j, chances);
    }
};

static_assert(Reduction<random_block> && Reduction<random_block, double>);

}  // namespace lockstep::compress
