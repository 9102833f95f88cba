// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concepts LayerSpec (what users write) and Layer (the same bound to an input shape), and the members of a layer
// that are functions; what it says of itself stands in traits.hpp.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/member.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/layers/traits.hpp"
#include "lockstep/layers/window_details.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// What every layer says of itself: a layer, a view or a join alike. `parameters` is a constexpr
/// std::array<tensor::parameter, N>; `flops` counts one forward sample, a multiply-add as two. Optional: `traits` (see
/// traits.hpp), and the members below. `input` of a join is the shape of the first value that it reads.
template <class L>
concept Described = tensor::Shape<typename L::input> && tensor::Shape<typename L::output> && requires {
    { L::parameters.size() } -> std::convertible_to<std::size_t>;
    { L::name } -> std::convertible_to<std::string_view>;
    { L::flops } -> std::convertible_to<double>;
    requires !core::name_is_of_objects<L> && !core::flops_is_of_objects<L>;
};

/// `statistics` (see pass.hpp) and `absorb(std::span<T> running, std::span<const T> observed)`, const noexcept: takes
/// the means over a minibatch into the running values, on every rank alike. Such a layer works on whole samples.
template <class L>
inline constexpr bool has_statistics = statistics_of<L>.size() > 0;

/// Whether files can tell its parameters and statistics apart: each has a name, and no two have the same.
template <class L>
inline constexpr bool names_its_arrays = [] {
    constexpr std::size_t parameters = L::parameters.size(), all = parameters + statistics_of<L>.size();
    const auto name = [](std::size_t i) -> std::string_view {
        return i < parameters ? L::parameters[i].name : statistics_of<L>[i - parameters].name;
    };
    for (std::size_t i = 0; i < all; ++i)
        for (std::size_t other = 0; other <= i; ++other)
            if (other < i ? name(i) == name(other) : name(i).empty()) return false;
    return true;
}();

/// The layer computes something: Layer says what.
template <class L, class T>
concept Runs = requires(const L& layer, const forward_pass<T, L>& forward, const backward_pass<T, L>& backward) {
    layer.forward(forward);
    layer.backward(backward);
};
/// It has running statistics, see has_statistics.
template <class L, class T>
concept Absorbs = requires(const L& layer, std::span<T> running, std::span<const T> observed) {
    { layer.absorb(running, observed) }
    noexcept;
};

/// A layer bound to its input. `forward(pass)` fills pass.y; `backward(pass)` first writes the weight gradients
/// (pass.each_lane), then pass.dx if pass.wants_dx(). Both are const: a layer has no state.
template <class L, class T = float>
concept Layer = Described<L> &&(traits_of<L>.is_view || Runs<L, T>)&&(!has_statistics<L> || Absorbs<L, T>);

/// What stands in a network: `on(shape)` is the layer for that input. Optional: `settings() -> std::string`, numbers
/// that all ranks must have been given alike, and `check()`, which throws core::error where they make no sense.
template <class S, class Input>
concept LayerSpec = std::copy_constructible<S> && requires(const S& spec) {
    { spec.on(Input{}) } -> Described;
};

/// What `on(shape)` returns for a shape that the layer cannot take, after a static_assert that says so. The layers
/// after it are not bound, so that its message stays the only one.
template <class Input>
struct unbound {
    /// What it was given.
    using input = Input;
    /// Any shape does: the network does not compile.
    using output = Input;
    /// In no text.
    static constexpr std::string_view name = "unbound";
    /// None.
    static constexpr std::array<tensor::parameter, 0> parameters{};
    /// None.
    static constexpr double flops = 0;
    /// Nothing is run.
    static constexpr layer_api::traits traits{.is_view = true};
};
template <class L>
inline constexpr bool is_unbound = false;
template <class Input>
inline constexpr bool is_unbound<unbound<Input>> = true;

// Optional members, with what holds where a layer does not have them.

/// `std::size_t scratch<T>(rows, lanes, team)`, const or static: elements of scratch that both passes need. Default:
/// none.
template <class T, class L>
[[nodiscard]] constexpr std::size_t scratch_size(const L& layer, std::size_t rows, std::size_t lanes,
                                                 parallel::team team) {
    if constexpr (requires { layer.template scratch<T>(rows, lanes, team); })
        return layer.template scratch<T>(rows, lanes, team);
    else
        return 0;
}

/// Gradients, or statistics, of one lane for which a layer needs room while so many lanes are added.
template <class L>
[[nodiscard]] constexpr std::size_t partial_sums(std::size_t lanes, parallel::team team) noexcept {
    return traits_of<L>.deals_lanes ? kept_lanes(lanes, team) : tensor::tree_depth(lanes);
}

/// `template <epilogue Epilogue> with_epilogue()`, constexpr: the layer that computes what this one and those after it
/// would, to the last bit; itself with epilogue::none. A layer that only inherits the member, or has an epilogue
/// already, is none of these.
template <class L>
inline constexpr bool takes_epilogue = requires(const L& layer) {
    { layer.template with_epilogue<epilogue::none>() } -> std::same_as<L>;
    layer.template with_epilogue<epilogue::relu>();
    layer.template with_epilogue<epilogue::add_relu>();
};

/// `static constexpr window_details details`: windows, for the text of a network.
template <class L>
inline constexpr bool has_details = requires {
    window_details{L::details};
};

/// `std::string remark()`, const or static: what the summary of a plan says after the layer.
template <class L>
inline constexpr bool has_remark = requires(const L& layer) {
    std::string{layer.remark()};
};

/// `template <std::size_t Shards> shard()`, constexpr const: the layer with 1/Shards of the output features (columns of
/// the parameters), made from this one with its members. A layer that only inherits the member is not cut: its part
/// would be a part of the other one.
template <class L>
inline constexpr bool is_shardable = false;
template <class L>
    requires requires(const L& layer) { layer.template shard<1>(); }
inline constexpr bool is_shardable<L> = [] {
    if constexpr (requires { &L::template shard<1>; })
        return !core::is_inherited<L, decltype(&L::template shard<1>)> ||
               std::is_same_v<decltype(std::declval<const L&>().template shard<1>()), L>;
    else
        return true;
}();
/// A type named shard would be a layer without the numbers of this one.
template <class L>
inline constexpr bool has_shard_type = requires {
    typename L::template shard<1>;
};

}  // namespace lockstep::layer_api
