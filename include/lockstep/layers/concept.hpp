// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concepts LayerSpec (what users write) and Layer (the same bound to an input shape), and the optional members of a
// layer.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/layers/pass.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// What every layer says of itself. `parameters` is a constexpr std::array<tensor::parameter, N>; `flops` counts one
/// forward sample, a multiply-add as two.
template <class L>
concept Described = tensor::Shape<typename L::input> && tensor::Shape<typename L::output> && requires {
    { L::parameters.size() } -> std::convertible_to<std::size_t>;
    { L::name } -> std::convertible_to<std::string_view>;
    { L::flops } -> std::convertible_to<double>;
};

/// A layer that only gives its input another shape: `static constexpr bool is_view = true`. It is never run.
template <class L>
inline constexpr bool is_view = false;
template <class L>
    requires requires { L::is_view; }
inline constexpr bool is_view<L> = L::is_view;

/// A layer that reads several values (see join.hpp): `static constexpr bool is_join = true`.
template <class L>
inline constexpr bool is_join = false;
template <class L>
    requires requires { L::is_join; }
inline constexpr bool is_join<L> = L::is_join;

/// A join with the gradient of y as that of each of its x: `static constexpr bool passes_gradient = true`.
template <class L>
inline constexpr bool passes_gradient = false;
template <class L>
    requires requires { L::passes_gradient; }
inline constexpr bool passes_gradient<L> = L::passes_gradient;

/// `statistics` (see pass.hpp) and `absorb(std::span<T> running, std::span<const T> observed)`, const noexcept: takes
/// the means over a minibatch into the running values, on every rank alike. Such a layer works on whole samples.
template <class L>
inline constexpr bool has_statistics = statistics_of<L>.size() > 0;

template <class L, class T>
concept Runs = requires(const L& layer, const forward_pass<T, L>& forward, const backward_pass<T, L>& backward) {
    layer.forward(forward);
    layer.backward(backward);
};
template <class L, class T>
concept Absorbs = requires(const L& layer, std::span<T> running, std::span<const T> observed) {
    { layer.absorb(running, observed) }
    noexcept;
};

/// A layer bound to its input. `forward(pass)` fills pass.y; `backward(pass)` first writes the weight gradients
/// (pass.each_lane), then pass.dx if pass.wants_dx(). Both are const: a layer has no state.
template <class L, class T = float>
concept Layer = Described<L> &&(is_view<L> || is_join<L> || Runs<L, T>)&&(!has_statistics<L> || Absorbs<L, T>);

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
    using input = Input;
    using output = Input;
    static constexpr std::string_view name = "unbound";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    static constexpr bool is_view = true;
};
template <class L>
inline constexpr bool is_unbound = false;
template <class Input>
inline constexpr bool is_unbound<unbound<Input>> = true;

// Optional members, with what holds where a layer does not have them.

/// `static constexpr double gradient_flops`: of one gradient, with respect to x or to the parameters. Default: as many
/// as forward.
template <class L>
inline constexpr double gradient_flops = static_cast<double>(L::flops);
template <class L>
    requires requires { L::gradient_flops; }
inline constexpr double gradient_flops<L> = L::gradient_flops;

/// `template <class T> static constexpr std::size_t saved_bytes`: bytes kept for each row from forward to backward.
/// Default: none.
template <class L, class T>
inline constexpr std::size_t saved_bytes = 0;
template <class L, class T>
    requires requires { L::template saved_bytes<T>; }
inline constexpr std::size_t saved_bytes<L, T> = L::template saved_bytes<T>;

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

/// `static constexpr bool adds_lanes = true`: the layer adds lanes itself and needs no partial sums of its gradient.
template <class L>
inline constexpr bool adds_lanes = false;
template <class L>
    requires requires { L::adds_lanes; }
inline constexpr bool adds_lanes<L> = L::adds_lanes;

/// `static constexpr bool deals_lanes = true`: threads may take lanes of their own, with pass.deal_lanes and
/// pass.deal_lanes_observed, and the scratch of both passes holds dealt_scratch() of one. For few parameters: there is
/// a gradient for each lane, not for each level of the tree.
template <class L>
inline constexpr bool deals_lanes = false;
template <class L>
    requires requires { L::deals_lanes; }
inline constexpr bool deals_lanes<L> = L::deals_lanes;
/// Gradients, or statistics, of one lane for which a layer needs room while so many lanes are added.
template <class L>
[[nodiscard]] constexpr std::size_t partial_sums(std::size_t lanes, parallel::team team) noexcept {
    return deals_lanes<L> ? kept_lanes(lanes, team) : tensor::tree_depth(lanes);
}

/// `static constexpr std::size_t least_rows_per_lane`: the fewest rows that a lane with rows may have in training;
/// fewer would train nothing, as statistics over one number do. A lane without rows stays possible. The plan refuses
/// lanes that are shorter, fit() deals a short minibatch over fewer lanes, step() refuses its rows. Default: 1.
template <class L>
inline constexpr std::size_t least_rows_per_lane = 1;
template <class L>
    requires requires { L::least_rows_per_lane; }
inline constexpr std::size_t least_rows_per_lane<L> = std::max<std::size_t>(1, L::least_rows_per_lane);

/// `static constexpr bool is_elementwise = true`: feature i of the output depends on feature i of the input only, so
/// the layer works as well on the features of one rank. Without effect for a layer that has parameters.
template <class L>
inline constexpr bool is_elementwise = false;
template <class L>
    requires requires { L::is_elementwise; }
inline constexpr bool is_elementwise<L> = L::is_elementwise;

/// `static constexpr bool needs_x = false`, `needs_y = false`: backward does not read pass.x, pass.y (their data is
/// then null), so their memory serves others after forward. Default: it reads both.
template <class L>
inline constexpr bool needs_x = true;
template <class L>
    requires requires { L::needs_x; }
inline constexpr bool needs_x<L> = L::needs_x;
template <class L>
inline constexpr bool needs_y = true;
template <class L>
    requires requires { L::needs_y; }
inline constexpr bool needs_y<L> = L::needs_y;

/// `static constexpr bool in_place = true`: y may be the memory of x in forward, and dx that of dy in backward.
/// Default: they are disjoint.
template <class L>
inline constexpr bool in_place = false;
template <class L>
    requires requires { L::in_place; }
inline constexpr bool in_place<L> = L::in_place;

/// What a layer computes in its own passes over memory besides itself: nothing, the relu after it, or the sum with
/// another value and a relu.
enum class epilogue : std::uint8_t { none, relu, add_relu };

/// `template <epilogue Epilogue> with_epilogue()`, constexpr: the layer that computes what this one and those after it
/// would, to the last bit; itself with epilogue::none. A layer that only inherits the member, or has an epilogue
/// already, is none of these.
template <class L>
inline constexpr bool takes_epilogue = requires(const L& layer) {
    { layer.template with_epilogue<epilogue::none>() } -> std::same_as<L>;
    layer.template with_epilogue<epilogue::relu>();
    layer.template with_epilogue<epilogue::add_relu>();
};

/// `static constexpr bool has_addend = true`: the layer has a second input, pass.addend, in the shape of its output,
/// and writes the gradient with respect to it into pass.daddend, always; with in_place that (and not dx) may be the
/// memory of dy. Backward does not read the addend.
template <class L>
inline constexpr bool has_addend = false;
template <class L>
    requires requires { L::has_addend; }
inline constexpr bool has_addend<L> = L::has_addend;

/// `static constexpr bool sums_gradient = true`: the gradient of the value, where it has several readers, may come in
/// two parts: backward takes dy + more_dy, in this order, for dy. With in_place a gradient may still be the memory of
/// dy, not of more_dy; where both are the same memory, none is.
template <class L>
inline constexpr bool sums_gradient = false;
template <class L>
    requires requires { L::sums_gradient; }
inline constexpr bool sums_gradient<L> = L::sums_gradient;

/// `static constexpr bool has_factors = true`: the parameters are W (inputs x outputs) and b (outputs), and their
/// gradients over rows are x^T dy and the sum of dy. Backward leaves them out unless pass.wants_gradient(): others form
/// them from x and dy.
template <class L>
inline constexpr bool has_factors = false;
template <class L>
    requires requires { L::has_factors; }
inline constexpr bool has_factors<L> = L::has_factors;

/// `std::string remark()`, const or static: what the summary of a plan says after the layer.
template <class L>
inline constexpr bool has_remark = requires(const L& layer) {
    std::string{layer.remark()};
};

/// `template <std::size_t Shards> shard()`, constexpr const: the layer with 1/Shards of the output features (columns of
/// the parameters), made from this one with its members.
template <class L>
inline constexpr bool is_shardable = requires(const L& layer) {
    layer.template shard<1>();
};
/// A type named shard would be a layer without the numbers of this one.
template <class L>
inline constexpr bool has_shard_type = requires {
    typename L::template shard<1>;
};

}  // namespace lockstep::layer_api
