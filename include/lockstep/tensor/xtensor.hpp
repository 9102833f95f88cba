// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The library's numbers as xtensors, views and copies: the only header that includes xtensor, and none of the library
// includes it. Programs that call a trainer's predict() or weights() do.

#if __has_include(<xtensor/containers/xadapt.hpp>)
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xtensor.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xtensor.hpp>
#endif

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/tensor/shape.hpp"
#include "lockstep/tensor/views.hpp"

namespace lockstep::tensor {

/// An xtensor of these extents over memory that the caller owns. Copies nothing.
/// Never leave a reduction of xtensor lazy inside of an expression.
template <class T, std::size_t Rank>
[[nodiscard]] auto as_xtensor(std::span<T> numbers, const std::array<std::size_t, Rank>& extents) {
    return xt::adapt(numbers.data(), numbers.size(), xt::no_ownership(), extents);
}

/// rows, and the extents of S.
template <Shape S>
[[nodiscard]] constexpr std::array<std::size_t, S::rank + 1> batch_extents(std::size_t rows) noexcept {
    std::array<std::size_t, S::rank + 1> extents{rows};
    for (std::size_t i = 0; i < S::rank; ++i) extents[i + 1] = S::extents[i];
    return extents;
}

/// rows x the extents of S.
template <Shape S, class T>
[[nodiscard]] auto as_xtensor_batch(std::span<T> numbers) {
    return as_xtensor(numbers, batch_extents<S>(numbers.size() / S::size));
}

template <class T>
struct views {
    template <std::size_t Rank>
    [[nodiscard]] static auto of(std::span<T> numbers, const std::array<std::size_t, Rank>& extents) {
        return as_xtensor(numbers, extents);
    }
    /// An xtensor with memory of its own: rows x the extents of S.
    template <Shape S>
    [[nodiscard]] static auto make_batch(std::size_t rows) {
        return xt::xtensor<std::remove_const_t<T>, S::rank + 1>::from_shape(batch_extents<S>(rows));
    }
};

}  // namespace lockstep::tensor
