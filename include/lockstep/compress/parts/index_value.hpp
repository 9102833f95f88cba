// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What compressors share that send some elements of a vector with their indices: the concept Sparsifier, their messages
// and their settings.
// Tested by tests/unit/compress/top_k.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"

namespace lockstep::compress {

/// A compressor that sends elements as they are, with their indices. `most(n)`: the largest number of them of n.
/// `select(in, indices)`: writes the indices of those to send in ascending order and returns their number; `indices`
/// holds most(n). Its messages are those of encode_pairs, or of what goes around it, such as `chain`.
template <class C, class T = float>
concept Sparsifier = Compressor<C, T> &&
    requires(const C& one, std::size_t n, const encoding<T>& in, std::span<std::uint32_t> indices) {
    { one.most(n) } -> std::convertible_to<std::size_t>;
    { one.select(in, indices) } -> std::convertible_to<std::size_t>;
    requires noexcept(one.select(in, indices));
};

/// max(1, ceil(ratio n)), 0 of 0. A product that rounding has lifted above a whole number counts as that number: 0.07
/// of 100 is 7.
[[nodiscard]] inline std::size_t share_of(double ratio, std::size_t n) noexcept {
    if (n == 0) return 0;
    const double exact = std::ceil(ratio * static_cast<double>(n) * (1 - 2 * std::numeric_limits<double>::epsilon()));
    return std::clamp(static_cast<std::size_t>(exact), std::size_t{1}, n);
}

/// Throws core::error unless 0 < ratio <= 1.
[[gnu::cold]] inline void check_share(std::string_view name, std::string_view what, double ratio) {
    if (!(ratio > 0 && ratio <= 1))
        core::fail(core::text(name, " has ", what, " = ", ratio, ", outside (0, 1]"),
                   "take the share of elements to send, such as 0.01");
}

/// Throws core::error if an index of 32 bits cannot name every element.
inline void require_short_indices(std::string_view name, std::size_t n) {
    if (n > std::numeric_limits<std::uint32_t>::max())
        core::fail(core::text(name, " is asked for ", n, " values in one message, but its indices have 32 bits"),
                   "set .segment of the plan, such as 65536");
}

/// Bytes of a value and its index.
template <class T>
inline constexpr std::size_t pair_bytes = sizeof(T) + sizeof(std::uint32_t);

/// The longest message of a sparsifier.
template <class T, class C>
[[nodiscard]] std::size_t pairs_bytes(const C& sparsifier, std::size_t n) {
    require_short_indices(C::name, n);
    return sparsifier.most(n) * pair_bytes<T>;
}

/// The message of a sparsifier: k values, then their k indices of 32 bits in ascending order. Returns its length.
template <class T, class C>
std::size_t encode_pairs(const C& sparsifier, const encoding<T>& in) noexcept {
    const std::size_t most = sparsifier.most(in.values.size());
    std::byte* const message = in.message.data();
    const auto indices = std::span{reinterpret_cast<std::uint32_t*>(message + most * sizeof(T)), most};
    const std::size_t k = sparsifier.select(in, indices);
    for (std::size_t i = 0; i < k; ++i) std::memcpy(message + i * sizeof(T), &in.values[indices[i]], sizeof(T));
    if (k < most) std::memmove(message + k * sizeof(T), indices.data(), k * sizeof(std::uint32_t));
    return k * pair_bytes<T>;
}

/// Index i of those that a message has from `indices` on, which may be any byte.
[[nodiscard]] inline std::uint32_t index_at(const std::byte* indices, std::size_t i) noexcept {
    std::uint32_t index;
    std::memcpy(&index, indices + i * sizeof(index), sizeof(index));
    return index;
}

/// sum += scale x what such a message says.
template <class T>
void add_pairs(std::span<const std::byte> message, T scale, std::span<T> sum) noexcept {
    const std::size_t k = message.size() / pair_bytes<T>;
    const std::byte* const indices = message.data() + k * sizeof(T);
    for (std::size_t i = 0; i < k; ++i) {
        T value;
        std::memcpy(&value, message.data() + i * sizeof(T), sizeof(T));
        const std::uint32_t index = index_at(indices, i);
        sum[index] = std::fma(scale, value, sum[index]);
    }
}

}  // namespace lockstep::compress
