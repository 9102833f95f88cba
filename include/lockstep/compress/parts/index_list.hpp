// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compressors whose message is a list of indices and values, and how such a message is read.
// Tested by tests/unit/compress/sparse_sum.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/parts/index_value.hpp"

namespace lockstep::compress {

/// Whether each message is that of encode_pairs(): k values of T, then their k indices of 32 bits in ascending order,
/// none of them twice. k may vary from message to message. So are those of a Sparsifier, of error_feedback around one,
/// and of what says `static constexpr bool sends_index_list = true`. That one has a `list_in<T>(message)` and a
/// `list_room<T>(n)` of its own, where its messages hold lists but are none, as those of warm_up, which one around it
/// passes on.
template <class C>
inline constexpr bool sends_index_list = Sparsifier<C>;
template <class C>
    requires requires { C::sends_index_list; }
inline constexpr bool sends_index_list<C> = C::sends_index_list;
template <class Inner>
inline constexpr bool sends_index_list<error_feedback<Inner>> = sends_index_list<Inner>;

/// A view of such a message, which may start at any byte, or of one with all numbers.
template <class T>
class index_list {
public:
    explicit index_list(std::span<const std::byte> message) noexcept
        : values_{message.data()}, count_{message.size() / pair_bytes<T>} {}
    /// Of a message of compress::none.
    [[nodiscard]] static index_list of_all(std::span<const std::byte> values) noexcept {
        index_list out{values};
        out.count_ = values.size() / sizeof(T);
        out.has_all_ = true;
        return out;
    }

    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] std::uint32_t index(std::size_t i) const noexcept {
        return has_all_ ? static_cast<std::uint32_t>(i) : index_at(values_ + count_ * sizeof(T), i);
    }
    [[nodiscard]] T value(std::size_t i) const noexcept {
        T out;
        std::memcpy(&out, values_ + i * sizeof(T), sizeof(T));
        return out;
    }

private:
    const std::byte* values_;
    std::size_t count_;
    bool has_all_ = false;
};

/// Entries of a worker for a vector.
struct list_room {
    std::size_t most = 0;   ///< in any step
    std::size_t usual = 0;  ///< at most, in all steps but the first ones
};

template <class C>
concept has_lists_of_its_own = requires(const C& of, std::span<const std::byte> message) {
    of.template list_in<float>(message);
    of.template list_room<float>(std::size_t{});
};
template <class C>
inline constexpr bool hides_lists = false;
template <class C>
    requires requires(const C& of) { of.inner; }
inline constexpr bool hides_lists<C> = has_lists_of_its_own<decltype(C::inner)> && !has_lists_of_its_own<C>;

/// The list in a message of `of`.
template <class T, class C>
[[nodiscard]] index_list<T> list_in(const C& of, std::span<const std::byte> message) noexcept {
    static_assert(
        !hides_lists<C>,
        "lockstep: what goes around a warm_up of lists passes its list_in<T>(message) and list_room<T>(n) on, "
        "as compress::measured does");
    if constexpr (has_lists_of_its_own<C>)
        return of.template list_in<T>(message);
    else
        return index_list<T>{message};
}
template <class T, class Inner>
[[nodiscard]] index_list<T> list_in(const error_feedback<Inner>& of, std::span<const std::byte> message) noexcept {
    return list_in<T>(of.inner, message);
}
/// For n numbers.
template <class T, class C>
[[nodiscard]] list_room list_room_of(const C& of, std::size_t n) {
    if constexpr (has_lists_of_its_own<C>) {
        return of.template list_room<T>(n);
    } else {
        const std::size_t most = std::min(n, std::size_t{of.template max_bytes<T>(n)} / pair_bytes<T>);
        return {most, most};
    }
}
template <class T, class Inner>
[[nodiscard]] list_room list_room_of(const error_feedback<Inner>& of, std::size_t n) {
    return list_room_of<T>(of.inner, n);
}

}  // namespace lockstep::compress
