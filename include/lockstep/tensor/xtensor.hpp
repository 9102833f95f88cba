// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Views of the library's memory as xtensor adaptors: the only header that includes xtensor, and none of the library includes it. Programs
// that call a trainer's predict() or weights() do.

#if __has_include(<xtensor/containers/xadapt.hpp>)
#include <xtensor/containers/xadapt.hpp>
#else
#include <xtensor/xadapt.hpp>
#endif

#include <array>
#include <cstddef>
#include <span>

#include "lockstep/tensor/shape.hpp"
#include "lockstep/tensor/views.hpp"

namespace lockstep::tensor {

/// An xtensor of these extents over memory that somebody else owns. Copies nothing.
template <class T, std::size_t Rank>
[[nodiscard]] auto as_xtensor(std::span<T> numbers, const std::array<std::size_t, Rank>& extents) {
    return xt::adapt(numbers.data(), numbers.size(), xt::no_ownership(), extents);
}

/// rows x the extents of S.
template <Shape S, class T>
[[nodiscard]] auto as_xtensor_batch(std::span<T> numbers) {
    std::array<std::size_t, S::rank + 1> extents{numbers.size() / S::size};
    for (std::size_t i = 0; i < S::rank; ++i) extents[i + 1] = S::extents[i];
    return as_xtensor(numbers, extents);
}

template <class T>
struct views {
    template <std::size_t Rank>
    [[nodiscard]] static auto of(std::span<T> numbers, const std::array<std::size_t, Rank>& extents) {
        return as_xtensor(numbers, extents);
    }
    template <Shape S>
    [[nodiscard]] static auto of_batch(std::span<T> numbers) {
        return as_xtensor_batch<S>(numbers);
    }
};

}  // namespace lockstep::tensor
