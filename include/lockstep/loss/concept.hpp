// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a loss must offer: the label that fits an output, and the sum of the losses of some rows with its derivative.
// Tested by tests/unit/loss/loss.cpp.

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "lockstep/core/member.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// `label<Output>` is the label that a network with this output is trained on.
/// `loss(y, target, dy, scale)` returns the sum of the losses of the rows of y, added in ascending order in double, and
/// writes dy = scale d(loss of the row)/dy; without dy (dy.data is null) it returns the sum only. Rows do not see each
/// other: the derivative of a row has the same bits in any batch. It is noexcept; several threads call it at once,
/// for lanes of their own. Optional: `check()` throws core::error on settings that make no sense.
template <class L, class T = float, class Output = tensor::shape<2>>
concept Loss = std::copy_constructible<L> && tensor::Label<typename L::template label<Output>> &&
    requires(const L& loss, tensor::batch<const T, Output> y,
             tensor::targets<typename L::template label<Output>, T> target, tensor::batch<T, Output> dy, T scale) {
    { L::name } -> std::convertible_to<std::string_view>;
    requires !core::name_is_of_objects<L>;
    { loss.settings() } -> std::convertible_to<std::string>;
    { loss(y, target, dy, scale) } -> std::same_as<double>;
    requires noexcept(loss(y, target, dy, scale));
};

/// Optional: `static constexpr std::size_t least_outputs`, the fewest outputs of a network that learns something from
/// this loss. The softmax of a single output, for example, is always 1. Default: 1.
template <class L>
inline constexpr std::size_t least_outputs = 1;
template <class L>
    requires requires { L::least_outputs; }
inline constexpr std::size_t least_outputs<L> = L::least_outputs;

/// Optional: `static constexpr std::size_t exact_outputs`, for a loss that has a setting for each output. Default 0:
/// any number.
template <class L>
inline constexpr std::size_t exact_outputs = 0;
template <class L>
    requires requires { L::exact_outputs; }
inline constexpr std::size_t exact_outputs<L> = L::exact_outputs;

/// Optional: `static constexpr std::array<double, 2> target_range`, within which each number of a target has to lie.
/// Default: any finite number.
template <class L>
inline constexpr std::array<double, 2> target_range{-std::numeric_limits<double>::infinity(),
                                                    std::numeric_limits<double>::infinity()};
template <class L>
    requires requires { L::target_range; }
inline constexpr std::array<double, 2> target_range<L> = L::target_range;

}  // namespace lockstep::loss
