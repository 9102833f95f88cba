// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random elements, the same for all workers: models Reduction.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/shared_subset.hpp"

namespace lockstep::compress {

/// Random-k with a seed that all ranks share (Stich, Cordonnier, Jaggi, NeurIPS 2018): k = max(1, ceil(ratio n))
/// elements, drawn anew in each step and for each vector, are added over workers, and nothing else is sent: no index
/// travels. One element is drawn of each of k runs of floor(n/k) or ceil(n/k) elements, so memory is walked once; where
/// k divides n each element has the chance k/n of k draws without repetition, and the error is theirs: E|v - C(v)|^2 =
/// (1 - k/n) |v|^2. Linear: what is decoded of a sum of messages is the sum of what is decoded of each.
/// unbiased: each element times the length of its run, n/k where k divides n, so that the expectation is v; E|v -
/// C(v)|^2 = (n/k - 1) |v|^2. Else biased: it wants error_feedback around it, which refuses the other.
/// Elements: k, one ordered sum. Random words: word j of the common stream for run j, with a bias below 2^-16 of its
/// chance. Tensors of one extent are added as they are. Segments of the plan are vectors of their own. No state.
struct random_k {
    double ratio = 0.01;
    bool unbiased = false;

    static constexpr std::string_view name = "random_k";
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

    /// Calls f(i, k, chances): one element of each run.
    template <class F>
    void each(std::size_t n, const core::random_stream& random, const F& f) const noexcept {
        const std::size_t k = share_of(ratio, n);
        if (k == 0) return;
        // Run j begins at floor(j n / k).
        const std::size_t length = n / k, longer = n % k;
        constexpr std::size_t few = 64;
        std::array<std::uint32_t, few> words;
        std::size_t first = 0, carried = 0;
        for (std::size_t j = 0; j < k; ++j) {
            if (j % few == 0) random.words(j, std::span{words}.first(std::min(few, k - j)));
            carried += longer;
            const std::size_t here = length + (carried >= k ? 1 : 0);
            if (carried >= k) carried -= k;
            // A word for each run, so that no more are used than there are elements. Long runs are few.
            const std::uint64_t drawn =
                here < 65536 ? (std::uint64_t{words[j % few]} * here) >> 32U : random.below(here, j);
            f(first + static_cast<std::size_t>(drawn), j, static_cast<double>(here));
            first += here;
        }
    }
};

static_assert(Reduction<random_k> && Reduction<random_k, double>);

}  // namespace lockstep::compress
