// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The shape of one sample as a type: rows, columns, channels in memory order. The number of samples is a run-time
// value.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/core/text.hpp"

namespace lockstep::tensor {

namespace detail {
/// Whether their product is no more than an object may have bytes.
template <class... Numbers>
[[nodiscard]] consteval bool fits(Numbers... extents) {
    std::size_t left = PTRDIFF_MAX;
    return ((extents == 0 || (left /= extents) > 0) && ...);
}
}  // namespace detail

/// shape<28, 28, 1>: one image; shape<10>: one row of ten features.
template <std::size_t... Extents>
struct shape {
    static_assert(((Extents > 0) && ...), "lockstep: every extent of a shape is at least 1");
    static constexpr std::size_t rank = sizeof...(Extents);
    static_assert(detail::fits(Extents...), "lockstep: a shape has more numbers than memory can have");
    static constexpr std::size_t size = (Extents * ... * 1);
    static constexpr std::array<std::size_t, rank> extents{Extents...};
};

template <class T>
inline constexpr bool is_shape = false;
template <std::size_t... Extents>
inline constexpr bool is_shape<shape<Extents...>> = true;

template <class T>
concept Shape = is_shape<T>;

/// rows x columns x channels.
template <class T>
concept ImageShape = Shape<T> && T::rank == 3;

/// A single extent: a row of features.
template <class T>
concept FlatShape = Shape<T> && T::rank == 1;

/// 28x28x1
template <Shape S>
[[nodiscard]] std::string to_text() {
    std::string out;
    for (std::size_t extent : S::extents) out += core::text(out.empty() ? "" : "x", extent);
    return out;
}

}  // namespace lockstep::tensor
