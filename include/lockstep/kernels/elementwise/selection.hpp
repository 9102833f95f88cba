// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exact selection of the k largest magnitudes and of those above a threshold: the same choice every time, ties to the
// lowest index.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/kernels/library.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/compact.hpp"

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

/// Writes the indices of the elements with |v| >= threshold, ascending, as many of the first ones as `indices` holds,
/// and returns how many there are in all. A NaN counts as larger than all numbers; threshold NaN: all elements. n <
/// 2^32. Cost: one pass.
template <class T>
std::size_t select_above(std::span<const T> v, T threshold, std::span<std::uint32_t> indices) noexcept {
    using vector = simd::batch<T>;
    const vector least(threshold);
    std::size_t count = 0, i = 0;
    for (; i + simd::width<T> <= v.size() && count + simd::width<T> <= indices.size(); i += simd::width<T>)
        count += simd::append_large(&v[i], static_cast<std::uint32_t>(i), least, &indices[count]);
    for (; i < v.size(); ++i)
        if (!(std::abs(v[i]) < threshold)) {
            if (count < indices.size()) indices[count] = static_cast<std::uint32_t>(i);
            ++count;
        }
    return count;
}

/// Elements that are looked at before the others: one of each n / count consecutive ones, at positions that are no
/// multiple of anything.
template <class T>
void sample(std::span<const T> v, std::span<T> out) noexcept {
    const std::size_t stride = v.size() / std::max<std::size_t>(1, out.size());
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = v[i * stride + ((static_cast<std::uint32_t>(i) * 2654435761U) * std::uint64_t{stride} >> 32U)];
}

/// Candidates that the functions below keep, for most `k` of n elements.
[[nodiscard]] constexpr std::size_t candidates(std::size_t n, std::size_t k) noexcept {
    return std::min(n, 4 * k + n / 32 + 64);
}
/// Numbers of their scratch.
[[nodiscard]] constexpr std::size_t selection_room(std::size_t n, std::size_t k) noexcept {
    return 2 * candidates(n, k);
}

namespace detail {

template <class T>
struct candidate_room {
    std::span<T> values;
    std::span<std::uint32_t> indices;

    candidate_room(std::span<T> room, std::size_t count) noexcept
        : values{room.first(count)}, indices{reinterpret_cast<std::uint32_t*>(room.data() + count), count} {
        static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
    }
};

/// The k largest of the first `count` candidates.
template <class T>
void largest_of(std::span<const T> v, std::size_t k, std::size_t count, const candidate_room<T>& from,
                std::span<std::uint32_t> indices) noexcept {
    std::array<std::uint32_t, top_k_scratch(parallel::team{})> bins;
    for (std::size_t i = 0; i < count; ++i) from.values[i] = v[from.indices[i]];
    top_k(std::span<const T>{from.values.first(count)}, k, indices, bins, parallel::team{});
    for (std::size_t i = 0; i < k; ++i) indices[i] = from.indices[indices[i]];
}

}  // namespace detail

/// The k-th largest magnitude of some values, 1 <= k <= n, which become magnitudes in another order.
template <class T>
[[nodiscard]] T magnitude_of_rank(std::span<T> values, std::size_t k) noexcept {
    for (T& value : values) value = std::abs(value);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(values.begin(), at, values.end(),
                     [](T a, T b) { return detail::magnitude_bits(a) > detail::magnitude_bits(b); });
    return *at;
}

/// The same choice as top_k, on one thread, in one pass and a small part of one: a threshold from a sample
/// that about twice as many elements reach as are wanted, then the largest of these. Where fewer or far more reach it,
/// and for k above n / 16, it is top_k. `room` has selection_room(n, k) numbers.
template <class T>
std::size_t top_k_by_sample(std::span<const T> v, std::size_t k, std::span<std::uint32_t> indices,
                            std::span<T> room) noexcept {
    constexpr std::size_t least = 4096, longest_sample = 65536;
    const std::size_t n = v.size();
    if (n >= least && k > 0 && k <= n / 16) {
        const detail::candidate_room<T> from{room, candidates(n, k)};
        const auto some = from.values.first(std::min(n / 32, longest_sample));
        sample(v, some);
        // Four standard deviations above what is expected of the sample.
        const double expected = static_cast<double>(k) * static_cast<double>(some.size()) / static_cast<double>(n);
        const auto rank = static_cast<std::size_t>(expected + 4 * std::sqrt(expected)) + 4;
        const T threshold = magnitude_of_rank(some, std::min(rank, some.size()));
        const std::size_t count = threshold > 0 ? select_above(v, threshold, from.indices) : n;
        if (count >= k && count <= from.indices.size()) {
            detail::largest_of(v, k, count, from, indices);
            return k;
        }
    }
    std::array<std::uint32_t, top_k_scratch(parallel::team{})> bins;
    return top_k(v, k, indices, bins, parallel::team{});
}

/// The elements with |v| >= threshold, or the `most` largest of them if there are more, in ascending order of their
/// indices. Returns how many reach the threshold. `indices` holds min(most, n), `room` selection_room(n, most).
template <class T>
std::size_t select_largest_above(std::span<const T> v, T threshold, std::size_t most, std::span<std::uint32_t> indices,
                                 std::span<T> room) noexcept {
    const detail::candidate_room<T> from{room, candidates(v.size(), most)};
    const std::size_t count = select_above(v, threshold, from.indices);
    if (count > from.indices.size())
        top_k_by_sample(v, most, indices, room);
    else if (count > most)
        detail::largest_of(v, most, count, from, indices);
    else
        std::copy_n(from.indices.begin(), count, indices.begin());
    return count;
}

LOCKSTEP_TEMPLATE(top_k<float>);
LOCKSTEP_TEMPLATE(top_k_by_sample<float>);
LOCKSTEP_TEMPLATE(select_largest_above<float>);

}  // namespace lockstep::kernels
