// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exact selection of the k largest magnitudes, by radix on the bits of the numbers: the same choice every time, ties to
// the lowest index.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/kernels/library.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

namespace detail {

/// Orders like |x|; NaN comes above infinity.
template <class T>
using magnitude_key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
[[nodiscard]] constexpr magnitude_key<T> magnitude_bits(T x) noexcept {
    return std::bit_cast<magnitude_key<T>>(x) & (~magnitude_key<T>{0} >> 1);
}

inline constexpr unsigned radix_bits = 11;
inline constexpr std::size_t radix_bins = std::size_t{1} << radix_bits;

}  // namespace detail

/// Words of scratch of top_k, whatever the length.
[[nodiscard]] constexpr std::size_t top_k_scratch(parallel::team team) noexcept {
    return static_cast<std::size_t>(team.threads) * detail::radix_bins;
}

/// Writes the indices of the min(k, n) elements of largest magnitude in ascending order and returns their number. Of
/// equal magnitudes the lowest indices are taken; a NaN counts as larger than infinity. n < 2^32; `indices` holds
/// min(k, n), `scratch` top_k_scratch(team). Cost: one pass for each 11 bits of the number and two more; no pass for k
/// = 0 and k >= n.
template <class T>
std::size_t top_k(std::span<const T> v, std::size_t k, std::span<std::uint32_t> indices,
                  std::span<std::uint32_t> scratch, parallel::team team) noexcept {
    using key = detail::magnitude_key<T>;
    const std::size_t n = v.size();
    const auto threads = static_cast<std::size_t>(team.threads);
    if (k == 0 || n == 0) return 0;
    if (k >= n) {
        for (std::size_t i = 0; i < n; ++i) indices[i] = static_cast<std::uint32_t>(i);
        return n;
    }

    // The k-th largest key, most significant digits first: `wanted` is its rank among the keys that share the digits
    // found so far.
    key threshold = 0;
    std::size_t wanted = k;
    unsigned shift = 8 * sizeof(T) - 1;
    for (key known = 0; shift > 0;) {
        const unsigned bits = std::min(shift, detail::radix_bits);
        shift -= bits;
        const key digit = (key{1} << bits) - 1;
        parallel::on_each_thread(team, [&](std::size_t thread) {
            std::uint32_t* bins = scratch.data() + thread * detail::radix_bins;
            std::fill_n(bins, detail::radix_bins, 0U);
            const parallel::block mine = parallel::split(n, threads, thread);
            for (std::size_t i = mine.first; i < mine.last; ++i) {
                const key bits_of = detail::magnitude_bits(v[i]);
                if ((bits_of & known) == threshold) ++bins[(bits_of >> shift) & digit];
            }
        });
        std::size_t bin = static_cast<std::size_t>(digit) + 1;
        for (std::size_t count = 0;; wanted -= count) {
            --bin;
            count = 0;
            for (std::size_t thread = 0; thread < threads; ++thread)
                count += scratch[thread * detail::radix_bins + bin];
            if (count >= wanted) break;
        }
        threshold |= static_cast<key>(bin) << shift;
        known |= digit << shift;
    }

    // Everything above the threshold, and the first `wanted` of those equal to it.
    parallel::on_each_thread(team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(n, threads, thread);
        std::uint32_t above = 0;
        std::uint32_t equal = 0;
        for (std::size_t i = mine.first; i < mine.last; ++i) {
            const key bits_of = detail::magnitude_bits(v[i]);
            above += bits_of > threshold;
            equal += bits_of == threshold;
        }
        scratch[thread * detail::radix_bins] = above;
        scratch[thread * detail::radix_bins + 1] = equal;
    });
    parallel::on_each_thread(team, [&](std::size_t thread) {
        std::size_t at = 0;
        std::size_t left = wanted;
        for (std::size_t before = 0; before < thread; ++before) {
            const std::size_t taken = std::min<std::size_t>(left, scratch[before * detail::radix_bins + 1]);
            at += scratch[before * detail::radix_bins] + taken;
            left -= taken;
        }
        const parallel::block mine = parallel::split(n, threads, thread);
        for (std::size_t i = mine.first; i < mine.last; ++i) {
            const key bits_of = detail::magnitude_bits(v[i]);
            if (bits_of < threshold) continue;
            if (bits_of == threshold) {
                if (left == 0) continue;
                --left;
            }
            indices[at++] = static_cast<std::uint32_t>(i);
        }
    });
    return k;
}

LOCKSTEP_TEMPLATE(top_k<float>);

}  // namespace lockstep::kernels
