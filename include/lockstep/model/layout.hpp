// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where each parameter and each statistic of a network lies among all of them: for programs that read, write or convert
// weights.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/tensor/parameter.hpp"

namespace lockstep::model {

/// rows x columns numbers in row-major order, from number `offset` on. Columns are output features.
struct layout_entry {
    std::size_t layer = 0;        ///< counted from 0, as in the summary
    std::string_view layer_name;  ///< such as conv
    std::string_view name;        ///< such as weight
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t offset = 0;

    [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
    /// Such as 0.conv.weight.
    [[nodiscard]] std::string full_name() const { return core::text(layer, ".", layer_name, ".", name); }
    friend constexpr bool operator==(const layout_entry&, const layout_entry&) = default;
};

namespace detail {

/// The entries of what `arrays_of(index)` gives for each layer, one after the other.
template <std::size_t Count, std::size_t Layers, class ArraysOf>
[[nodiscard]] consteval std::array<layout_entry, Count> make_layout(ArraysOf arrays_of) {
    std::array<layout_entry, Count> out{};
    std::size_t entry = 0, offset = 0;
    core::for_each_index<Layers>([&](auto index) {
        const auto [layer_name, arrays] = arrays_of(index);
        for (const tensor::parameter& one : arrays) {
            out[entry++] = {index, layer_name, one.name, one.rows, one.columns, offset};
            offset += one.size();
        }
    });
    return out;
}

template <class Arrays>
struct named_arrays {
    std::string_view layer_name;
    Arrays arrays;
};
template <class Arrays>
named_arrays(std::string_view, Arrays) -> named_arrays<Arrays>;

}  // namespace detail

/// The layout of trainer::all_weights(), which is that of the uncut network in every partition: layer after layer, the
/// parameters of a layer in the order in which it declares them. `Network`: a trainer's.
template <class Network>
inline constexpr auto weight_layout = [] {
    constexpr std::size_t count = [] {
        std::size_t sum = 0;
        core::for_each_index<Network::size>(
            [&](auto index) { sum += Network::template at<index>::whole::parameters.size(); });
        return sum;
    }();
    return detail::make_layout<count, Network::size>([](auto index) {
        using whole = typename Network::template at<decltype(index)::value>::whole;
        return detail::named_arrays{std::string_view{whole::name}, whole::parameters};
    });
}();

/// The layout of trainer::running_statistics(), equal on all ranks in every partition.
template <class Network>
inline constexpr auto statistics_layout = [] {
    constexpr std::size_t count = [] {
        std::size_t sum = 0;
        core::for_each_index<Network::size>(
            [&](auto index) { sum += layer_api::statistics_of<typename Network::template at<index>::whole>.size(); });
        return sum;
    }();
    return detail::make_layout<count, Network::size>([](auto index) {
        using whole = typename Network::template at<decltype(index)::value>::whole;
        return detail::named_arrays{std::string_view{whole::name}, layer_api::statistics_of<whole>};
    });
}();

}  // namespace lockstep::model

namespace lockstep {
using model::statistics_layout;
using model::weight_layout;
}  // namespace lockstep
