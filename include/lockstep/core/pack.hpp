// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A flat heterogeneous list: each element is a base class found by its number, so access costs the compiler O(1) where
// std::tuple recurses.

#include <cstddef>
#include <utility>

namespace lockstep::core {

template <std::size_t Index, class T>
struct pack_leaf {
    T value;
};

template <class Indices, class... Ts>
struct pack_leaves;

template <std::size_t... Index, class... Ts>
struct pack_leaves<std::index_sequence<Index...>, Ts...> : pack_leaf<Index, Ts>... {};

template <class... Ts>
struct pack : pack_leaves<std::index_sequence_for<Ts...>, Ts...> {
    static constexpr std::size_t size = sizeof...(Ts);

    constexpr pack() = default;
    constexpr pack(const Ts&... values) requires(sizeof...(Ts) > 0)
        : pack_leaves<std::index_sequence_for<Ts...>, Ts...>{{values}...} {}
};

namespace detail {
template <std::size_t Index, class T>
constexpr const T& leaf(const pack_leaf<Index, T>& element) noexcept {
    return element.value;
}
template <std::size_t Index, class T>
constexpr T& leaf(pack_leaf<Index, T>& element) noexcept {
    return element.value;
}
template <std::size_t Index, class T>
T leaf_type(const pack_leaf<Index, T>&);
}  // namespace detail

template <std::size_t Index, class... Ts>
[[nodiscard]] constexpr decltype(auto) get(const pack<Ts...>& all) noexcept {
    return detail::leaf<Index>(all);
}
template <std::size_t Index, class... Ts>
[[nodiscard]] constexpr decltype(auto) get(pack<Ts...>& all) noexcept {
    return detail::leaf<Index>(all);
}

template <std::size_t Index, class Pack>
using element = decltype(detail::leaf_type<Index>(std::declval<const Pack&>()));

/// Calls f(index<0>, ..) .. f(index<N-1>): a loop over compile-time numbers.
template <std::size_t Index>
using index_constant = std::integral_constant<std::size_t, Index>;

template <std::size_t Count, class F>
constexpr void for_each_index(F&& f) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) { (f(index_constant<Index>{}), ...); }
    (std::make_index_sequence<Count>{});
}

template <std::size_t Count, class F>
constexpr void for_each_index_reversed(F&& f) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) { (f(index_constant<Count - 1 - Index>{}), ...); }
    (std::make_index_sequence<Count>{});
}

}  // namespace lockstep::core
