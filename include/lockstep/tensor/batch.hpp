// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Views of a run-time number of samples of a compile-time shape: what layers read and write.

#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/tensor/shape.hpp"

namespace lockstep::tensor {

/// `rows` samples of shape S, one after the other. Does not own its memory.
template <class T, Shape S>
struct batch {
    using value_type = std::remove_const_t<T>;
    using shape = S;

    T* data = nullptr;
    std::size_t rows = 0;

    [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * S::size; }
    [[nodiscard]] constexpr bool empty() const noexcept { return rows == 0 || data == nullptr; }
    [[nodiscard]] constexpr std::span<T> all() const noexcept { return {data, size()}; }
    [[nodiscard]] constexpr std::span<T, S::size> sample(std::size_t row) const noexcept {
        return std::span<T, S::size>{data + row * S::size, S::size};
    }
    [[nodiscard]] constexpr batch part(std::size_t first, std::size_t count) const noexcept {
        return {data + first * S::size, count};
    }
    constexpr operator batch<const T, S>() const noexcept requires(!std::is_const_v<T>) { return {data, rows}; }
};

}  // namespace lockstep::tensor
