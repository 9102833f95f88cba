// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Per-element state that a component declares by number and the trainer owns: momenta of an optimizer, residuals of a
// compressor.

#include <cstddef>
#include <span>

namespace lockstep::tensor {

/// `count` arrays of `size` numbers each, `stride` numbers apart. Part of the state belongs to part of the weights.
template <class T>
class slots {
public:
    constexpr slots() = default;
    constexpr slots(T* data, std::size_t count, std::size_t size, std::size_t stride) noexcept
        : data_{data}, count_{count}, size_{size}, stride_{stride} {}

    [[nodiscard]] constexpr std::span<T> operator[](std::size_t index) const noexcept {
        return {data_ + index * stride_, size_};
    }
    [[nodiscard]] constexpr std::size_t count() const noexcept { return count_; }
    [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }

    /// The state of elements first .. first + size - 1.
    [[nodiscard]] constexpr slots part(std::size_t first, std::size_t size) const noexcept {
        return {data_ + first, count_, size, stride_};
    }
    /// Slots first .. first + count - 1: what a decorator hands to the component inside it.
    [[nodiscard]] constexpr slots from(std::size_t first, std::size_t count) const noexcept {
        return {data_ + first * stride_, count, size_, stride_};
    }

private:
    T* data_ = nullptr;
    std::size_t count_ = 0;
    std::size_t size_ = 0;
    std::size_t stride_ = 0;
};

}  // namespace lockstep::tensor
