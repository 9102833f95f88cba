// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compressors whose message is a list of indices and values, and how such a message is read.
// Tested by tests/unit/compress/sparse_sum.cpp.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/parts/index_value.hpp"

namespace lockstep::compress {

/// Whether each message is that of encode_pairs(): k values of T, then their k indices of 32 bits in ascending order,
/// none of them twice. k may vary from message to message. So are those of a Sparsifier, of error_feedback around one,
/// and of what says `static constexpr bool sends_index_list = true`.
template <class C>
inline constexpr bool sends_index_list = Sparsifier<C>;
template <class C>
    requires requires { C::sends_index_list; }
inline constexpr bool sends_index_list<C> = C::sends_index_list;
template <class Inner>
inline constexpr bool sends_index_list<error_feedback<Inner>> = sends_index_list<Inner>;

/// A view of such a message, which may start at any byte.
template <class T>
class index_list {
public:
    explicit index_list(std::span<const std::byte> message) noexcept
        : values_{message.data()}, count_{message.size() / pair_bytes<T>} {}

    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] std::uint32_t index(std::size_t i) const noexcept {
        return index_at(values_ + count_ * sizeof(T), i);
    }
    [[nodiscard]] T value(std::size_t i) const noexcept {
        T out;
        std::memcpy(&out, values_ + i * sizeof(T), sizeof(T));
        return out;
    }

private:
    const std::byte* values_;
    std::size_t count_;
};

}  // namespace lockstep::compress
