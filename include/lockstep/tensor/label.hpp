// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a sample is labelled with: one of N classes, or a row of numbers. Ties data sets to losses at compile time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/tensor/shape.hpp"

namespace lockstep::tensor {

/// One class number in 0 .. Count-1 for each sample.
template <std::size_t Count>
struct classes {
    static constexpr std::size_t count = Count;
};

template <class T>
inline constexpr bool is_classes = false;
template <std::size_t Count>
inline constexpr bool is_classes<classes<Count>> = true;

/// classes<N> for classification, shape<..> for regression.
template <class L>
concept Label = is_classes<L> || Shape<L>;

/// What a class number may be: a whole number that std::in_range takes, so neither bool nor a character.
template <class T>
inline constexpr bool is_class_number =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> &&
    !std::is_same_v<T, char8_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;

/// Numbers that label one sample, and their type in a network that computes in T.
template <Label L>
inline constexpr std::size_t label_size = [] {
    if constexpr (is_classes<L>)
        return std::size_t{1};
    else
        return L::size;
}();
template <Label L, class T>
using label_element = std::conditional_t<is_classes<L>, std::int32_t, T>;

/// The labels of consecutive samples: label_size<L> elements for each.
template <Label L, class T>
using targets = std::span<const label_element<L, T>>;

/// The remedy in an error on a label that no class has: one that is just too large may be of labels from 1 on, and one
/// below 0 may mark samples without a class.
template <class N>
[[nodiscard]] constexpr std::string_view label_remedy(N found, std::size_t count, std::string_view otherwise) noexcept {
    if (found == static_cast<N>(count))
        return "labels count from 0: subtract 1 if these count from 1, or declare more classes";
    if (found < N{}) return "correct the label: classes count from 0, and none stands for a sample to leave out";
    return otherwise;
}

}  // namespace lockstep::tensor
