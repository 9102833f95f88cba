// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a layer, a view or a join says of itself beyond its shapes: one aggregate, which the memory plan takes as it is.
// Tested by tests/unit/layers/concept.cpp.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::layer_api {

/// `static constexpr layer_api::traits traits{.needs_y = false};` in a layer says what is not as here.
struct traits {
    /// Values that it reads, each of a shape of its own: more than one make it a join (see join.hpp).
    std::size_t inputs = 1;
    /// It only gives its input another shape, and is never run.
    bool is_view = false;
    /// The gradient of y is that of each of its x, which are as large: backward is never run.
    bool passes_gradient = false;
    /// Feature i of the output depends on feature i of the input only, so the layer works as well on the features of
    /// one rank. Without effect for a layer that has parameters.
    bool is_elementwise = false;

    /// Backward reads pass.x. Where it does not, its data is null and its memory serves others after forward.
    bool needs_x = true;
    /// The same of pass.y.
    bool needs_y = true;
    /// y may be the memory of x in forward (of one of them in a join), and dx (of a join the first) that of dy in
    /// backward; else they are disjoint. A join that reads one value twice has the same array for both, which y may be.
    bool in_place = false;
    /// The layer has a second input, pass.addend, in the shape of its output, and writes the gradient with respect to
    /// it into pass.daddend, always; with in_place that (and not dx) may be the memory of dy. Backward does not read
    /// the addend.
    bool has_addend = false;
    /// The gradient of the value, where it has several readers, may come in two parts: backward takes dy + more_dy, in
    /// this order, for dy. With in_place a gradient may still be the memory of dy, not of more_dy; where both are the
    /// same memory, none is.
    bool sums_gradient = false;

    /// The layer adds lanes itself and needs no partial sums of its gradient.
    bool adds_lanes = false;
    /// Threads may take lanes of their own, with pass.deal_lanes and pass.deal_lanes_observed, and the scratch of both
    /// passes holds dealt_scratch() of one. For few parameters: there is a gradient for each lane, not for each level
    /// of the tree.
    bool deals_lanes = false;
    /// The parameters are W (inputs x outputs) and b (outputs), and their gradients over rows are x^T dy and the sum of
    /// dy. Backward leaves them out unless pass.wants_gradient(): others form them from x and dy.
    bool has_factors = false;

    /// Bytes that are kept for each row from forward to backward.
    std::size_t saved_bytes = 0;
    /// The same, counted in numbers of the network's precision.
    std::size_t saved_numbers = 0;
    /// The fewest rows that a lane with rows may have in training; fewer would train nothing, as statistics over one
    /// number do. A lane without rows stays possible. The plan refuses lanes that are shorter, fit() deals a short
    /// minibatch over fewer lanes, step() refuses its rows.
    std::size_t least_rows_per_lane = 1;
    /// Operations of one gradient, with respect to x or to the parameters, as a part of those of forward.
    double gradient_share = 1;
};

/// Those of a layer; the usual ones where it says nothing.
template <class L>
inline constexpr traits traits_of{};
template <class L>
    requires requires { L::traits; }
inline constexpr traits traits_of<L> = L::traits;

/// It reads several values.
template <class L>
inline constexpr bool is_join = traits_of<L>.inputs > 1;

/// Bytes kept for each row from forward to backward.
template <class L, class T>
inline constexpr std::size_t saved_bytes = traits_of<L>.saved_bytes + traits_of<L>.saved_numbers * sizeof(T);

/// What a layer computes in its own passes over memory besides itself: nothing, the relu after it, or the sum with
/// another value and a relu.
enum class epilogue : std::uint8_t { none, relu, add_relu };

/// As what a layer may be computed by the one before it.
enum class epilogue_part : std::uint8_t { none, relu, sum_of_two };

/// `static constexpr epilogue_part as_epilogue(std::type_identity<L>)`: the layer computes exactly that, to the last
/// bit. The argument names the layer itself: one that only inherits the member is computed on its own.
template <class L>
inline constexpr epilogue_part as_epilogue = epilogue_part::none;
template <class L>
    requires requires {
        { L::as_epilogue(std::type_identity<L>{}) } -> std::same_as<epilogue_part>;
    }
inline constexpr epilogue_part as_epilogue<L> = L::as_epilogue(std::type_identity<L>{});

}  // namespace lockstep::layer_api
