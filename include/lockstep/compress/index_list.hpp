// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compressors whose message is a list of indices and values, and how such a message is read.
// Tested by tests/unit/compress/sparse_sum.cpp.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/compress/error_feedback.hpp"

namespace lockstep::compress {

/// A compressor says `static constexpr bool sends_index_list = true` if each message is k values of T, then their k
/// indices of 32 bits in ascending order, none of them twice, and decodes to these values at these indices. k may vary
/// from message to message. error_feedback around one is one.
template <class C>
inline constexpr bool sends_index_list = false;
template <class C>
    requires requires { C::sends_index_list; }
inline constexpr bool sends_index_list<C> = C::sends_index_list;
template <class Inner>
inline constexpr bool sends_index_list<error_feedback<Inner>> = sends_index_list<Inner>;

/// Bytes of an entry of such a message.
template <class T>
inline constexpr std::size_t list_entry_bytes = sizeof(T) + sizeof(std::uint32_t);

/// A view of such a message, which may start at any byte.
template <class T>
class index_list {
public:
    explicit index_list(std::span<const std::byte> message) noexcept
        : values_{message.data()}, count_{message.size() / list_entry_bytes<T>} {}

    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] std::uint32_t index(std::size_t i) const noexcept {
        std::uint32_t out;
        std::memcpy(&out, values_ + count_ * sizeof(T) + i * sizeof(out), sizeof(out));
        return out;
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
