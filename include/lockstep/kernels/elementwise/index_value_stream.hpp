// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Index-value streams that turn dense past break-even (SparCML), and how two of them are added or cut to the largest.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

/// What a stream begins with. `bytes` comes first: a message of varying length begins with its length (comm/flow.hpp).
struct stream_header {
    std::uint64_t bytes = sizeof(stream_header);  ///< of all of it
    std::uint32_t universe = 0;                   ///< N: its indices are 0 .. N - 1
    std::uint16_t is_dense = 0;
    std::uint16_t is_lost = 0;  ///< a number was not finite: the sum means nothing
};
static_assert(sizeof(stream_header) == 16);

/// One number of a stream. In memory: 4 bytes of index, then those of the value, without padding.
template <class T>
struct stream_entry {
    std::uint32_t index = 0;
    T value{};
};
template <class T>
inline constexpr std::size_t stream_entry_bytes = sizeof(std::uint32_t) + sizeof(T);

/// Entries up to which a sparse stream takes no more bytes than a dense one: delta = N c / (c + 4), c bytes a value.
template <class T>
[[nodiscard]] constexpr std::size_t break_even(std::size_t universe) noexcept {
    return universe * sizeof(T) / stream_entry_bytes<T>;
}
/// Bytes of a stream of `entries` entries; no stream of fewer takes more.
template <class T>
[[nodiscard]] constexpr std::size_t stream_bytes(std::size_t entries, std::size_t universe) noexcept {
    return sizeof(stream_header) +
           (entries <= break_even<T>(universe) ? entries * stream_entry_bytes<T> : universe * sizeof(T));
}

/// A view of a stream in memory that starts at a multiple of 16 bytes. T is const for one that is only read.
///     sparse: header, then entries by ascending index       dense: header, then N values, -0 where there is no entry
/// An entry stays where its value cancels to zero, so lengths depend on indices alone. -0 is the number that changes no
/// other in a sum: a stream has the same values whether and whenever it turned dense. Which of the two it is follows
/// from the number of entries at each addition.
template <class T>
class index_value_stream {
    using value_type = std::remove_const_t<T>;
    using byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    static constexpr std::size_t stride = stream_entry_bytes<value_type>;

public:
    explicit index_value_stream(byte* memory) noexcept : memory_{memory} {}

    /// Makes it an empty one.
    void clear(std::size_t universe) const noexcept { write({.universe = static_cast<std::uint32_t>(universe)}); }
    [[nodiscard]] stream_header header() const noexcept {
        stream_header out;
        std::memcpy(&out, memory_, sizeof(out));
        return out;
    }
    void write(const stream_header& header) const noexcept { std::memcpy(memory_, &header, sizeof(header)); }

    /// Of a sparse one.
    [[nodiscard]] std::size_t count() const noexcept { return (header().bytes - sizeof(stream_header)) / stride; }
    [[nodiscard]] byte* entries() const noexcept { return memory_ + sizeof(stream_header); }
    [[nodiscard]] static stream_entry<value_type> entry(const std::byte* entries, std::size_t i) noexcept {
        stream_entry<value_type> out;
        std::memcpy(&out.index, entries + i * stride, sizeof(out.index));
        std::memcpy(&out.value, entries + i * stride + sizeof(out.index), sizeof(out.value));
        return out;
    }
    static void set_entry(std::byte* entries, std::size_t i, const stream_entry<value_type>& what) noexcept {
        std::memcpy(entries + i * stride, &what.index, sizeof(what.index));
        std::memcpy(entries + i * stride + sizeof(what.index), &what.value, sizeof(what.value));
    }
    /// Of a dense one.
    [[nodiscard]] std::span<T> values() const noexcept {
        return {reinterpret_cast<T*>(memory_ + sizeof(stream_header)), header().universe};
    }

    /// `more` entries of larger indices than all before, ascending: entry(i) is the i-th. `scratch`: N values.
    template <class F>
    void append(std::size_t more, const F& entry, std::byte* scratch) const noexcept {
        stream_header now = header();
        if (now.is_dense == 0) {
            const std::size_t before = count();
            if (before + more <= break_even<value_type>(now.universe)) {
                for (std::size_t i = 0; i < more; ++i) set_entry(entries(), before + i, entry(i));
                now.bytes += more * stride;
                return write(now);
            }
            turn_dense(scratch);
        }
        const std::span<T> all = values();
        for (std::size_t i = 0; i < more; ++i) {
            const stream_entry<value_type> next = entry(i);
            all[next.index] = next.value;
        }
    }
    /// `scratch`: N values.
    void turn_dense(std::byte* scratch) const noexcept {
        stream_header now = header();
        const std::size_t before = count();
        std::memcpy(scratch, entries(), before * stride);
        now.is_dense = 1;
        now.bytes = sizeof(now) + now.universe * sizeof(value_type);
        write(now);
        const std::span<T> all = values();
        std::fill(all.begin(), all.end(), value_type{-0.0F});
        for (std::size_t i = 0; i < before; ++i) {
            const auto [index, value] = entry(scratch, i);
            all[index] = value;
        }
    }

private:
    byte* memory_;
};

namespace detail {

/// 1 if x <= y, else 0, from the borrow of a difference: which of two indices comes first is no pattern that a
/// processor could predict, and a comparison may become a branch.
[[nodiscard]] constexpr std::size_t at_most(std::uint32_t x, std::uint32_t y) noexcept {
    return 1 - static_cast<std::size_t>((std::uint64_t{y} - std::uint64_t{x}) >> 63U);
}

/// Indices that are in a, in b, or in both.
template <class T>
[[nodiscard]] std::size_t union_size(const std::byte* a, std::size_t n, const std::byte* b, std::size_t m) noexcept {
    using stream = index_value_stream<T>;
    std::size_t i = 0, j = 0, out = 0;
    for (; i < n && j < m; ++out) {
        const std::uint32_t x = stream::entry(a, i).index, y = stream::entry(b, j).index;
        i += at_most(x, y);
        j += at_most(y, x);
    }
    return out + (n - i) + (m - j);
}

/// value if is_there is 1; if it is 0, the number that changes no other in a sum.
template <class T>
[[nodiscard]] T or_minus_zero(std::size_t is_there, T value) noexcept {
    using word = magnitude_key<T>;
    const word mask = word{0} - static_cast<word>(is_there), sign = ~(~word{0} >> 1);
    return std::bit_cast<T>(static_cast<word>((std::bit_cast<word>(value) & mask) | (sign & ~mask)));
}

}  // namespace detail

/// to = to + from, of the same universe: an index of one of them keeps its value, one of both has the sum. Addition
/// commutes, so which of the two is `to` changes no bit. In place: `to` has room for stream_bytes() of the union,
/// `scratch` for N values; nothing is read past the ends of either. Dense where one of them is, or where the union has
/// more entries than break-even.
/// Cost: sparse with n and m entries two passes over n + m entries, the second one from the back; one entry of a sparse
/// one is one addition in a dense one; two dense ones are one vector addition of N.
template <class T>
void merge_streams(std::byte* to, const std::byte* from, std::byte* scratch) noexcept {
    const index_value_stream<T> sum{to};
    const index_value_stream<const T> other{from};
    const stream_header theirs = other.header();
    stream_header now = sum.header();
    now.is_lost |= theirs.is_lost;
    sum.write(now);
    if (now.is_dense != 0 && theirs.is_dense != 0) return add(std::span<const T>{other.values()}, sum.values());
    const auto scatter = [&](const std::byte* entries, std::size_t count) {
        const std::span<T> all = sum.values();
        for (std::size_t i = 0; i < count; ++i) {
            const auto [index, value] = index_value_stream<T>::entry(entries, i);
            all[index] += value;
        }
    };
    if (theirs.is_dense != 0) {
        const std::size_t count = sum.count();
        std::memcpy(scratch, sum.entries(), count * stream_entry_bytes<T>);
        now.bytes = theirs.bytes;
        now.is_dense = 1;
        sum.write(now);
        std::ranges::copy(other.values(), sum.values().begin());
        return scatter(scratch, count);
    }
    const std::size_t m = other.count();
    if (now.is_dense != 0) return scatter(other.entries(), m);
    std::size_t i = sum.count(), j = m;
    std::byte* const a = sum.entries();
    const std::byte* const b = other.entries();
    std::size_t at = detail::union_size<T>(a, i, b, j);
    if (at > break_even<T>(now.universe)) {
        sum.turn_dense(scratch);
        return scatter(b, m);
    }
    now.bytes = sizeof(now) + at * stream_entry_bytes<T>;
    sum.write(now);
    // From the back: what is written lies at or after the entries of `to` that are still to be read.
    while (i > 0 && j > 0) {
        const auto x = index_value_stream<T>::entry(a, i - 1), y = index_value_stream<T>::entry(b, j - 1);
        const std::size_t left = detail::at_most(y.index, x.index), right = detail::at_most(x.index, y.index);
        index_value_stream<T>::set_entry(
            a, --at,
            {std::max(x.index, y.index), detail::or_minus_zero(left, x.value) + detail::or_minus_zero(right, y.value)});
        i -= left;
        j -= right;
    }
    // Entries of `to` that are left are where they belong.
    if (j > 0) std::memcpy(a, b, j * stream_entry_bytes<T>);
}

/// A run of indices of a universe, from where the run before ends, of which a stream has exactly `most` entries.
struct stream_cut {
    std::uint32_t end = 0;  ///< of its indices
    std::uint32_t most = 0;
};

/// Bytes of scratch of merge_largest().
template <class T>
[[nodiscard]] constexpr std::size_t merge_largest_scratch(std::span<const stream_cut> cuts) noexcept {
    std::size_t most = 0;
    for (const stream_cut& one : cuts) most = std::max<std::size_t>(most, one.most);
    return most * (2 * sizeof(T) + 3 * sizeof(std::uint32_t));
}

/// to = the largest magnitudes of to + from, for each run of indices as many as both have there; of equal ones those of
/// the lowest indices, NaN before infinity. Both are sparse, however many entries they have. In place: the length of
/// `to` stays. `scratch`: merge_largest_scratch(cuts) bytes, from a multiple of 8 on.
template <class T>
void merge_largest(std::span<const stream_cut> cuts, std::byte* to, const std::byte* from,
                   std::byte* scratch) noexcept {
    using stream = index_value_stream<T>;
    const stream sum{to};
    stream_header now = sum.header();
    now.is_lost |= index_value_stream<const T>{from}.header().is_lost;
    sum.write(now);
    std::array<std::uint32_t, top_k_scratch(parallel::team{})> bins;
    std::size_t first = 0;
    for (const stream_cut& cut : cuts) {
        const std::size_t k = cut.most;
        std::byte* const a = sum.entries() + first * stream_entry_bytes<T>;
        const std::byte* const b = from + sizeof(stream_header) + first * stream_entry_bytes<T>;
        T* const values = reinterpret_cast<T*>(scratch);
        auto* const indices = reinterpret_cast<std::uint32_t*>(values + 2 * k);
        std::size_t i = 0, j = 0, count = 0;
        for (; i < k || j < k; ++count) {
            const auto x = i < k ? stream::entry(a, i) : stream_entry<T>{cut.end};
            const auto y = j < k ? stream::entry(b, j) : stream_entry<T>{cut.end};
            const bool left = x.index <= y.index, right = y.index <= x.index;
            indices[count] = left ? x.index : y.index;
            values[count] = left && right ? x.value + y.value : left ? x.value : y.value;
            i += left ? 1 : 0;
            j += right ? 1 : 0;
        }
        const std::span<std::uint32_t> taken{indices + 2 * k, k};
        top_k(std::span<const T>{values, count}, k, taken, bins, parallel::team{});
        for (std::size_t entry = 0; entry < k; ++entry)
            stream::set_entry(a, entry, {indices[taken[entry]], values[taken[entry]]});
        first += k;
    }
}

}  // namespace lockstep::kernels
