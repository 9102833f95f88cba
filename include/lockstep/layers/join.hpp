// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Joins, the layers that read several values: their sum, and their concatenation over channels. The ends of the
// branches of a network.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/layers/concept.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// y = x0 + x1 + .., added from the left. Backward has nothing to do: the gradient of each x is that of y.
template <std::size_t Count, tensor::Shape S>
struct add_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "add";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = static_cast<double>((Count - 1) * S::size);
    static constexpr layer_api::traits traits{
        .inputs = Count, .passes_gradient = true, .needs_x = false, .needs_y = false, .in_place = true};
    [[nodiscard]] static constexpr epilogue_part as_epilogue(std::type_identity<add_layer>) noexcept {
        return Count == 2 ? epilogue_part::sum_of_two : epilogue_part::none;
    }

    void forward(const auto& pass) const noexcept { add(pass.x, pass.y.data, pass.y.rows, pass.use.team); }
    void backward(const auto&) const noexcept {}
    /// y may be one of the x.
    template <class T>
    static void add(const std::array<const T*, Count>& x, T* y, std::size_t rows, parallel::team team) noexcept {
        parallel::for_blocks(team, rows * S::size, 4096, [&](parallel::block part) {
            [&]<std::size_t... K>(std::index_sequence<K...>) {
                simd::map(
                    part.size(),
                    [](auto& sum, const auto& first, const auto&... others) {
                        ((sum = first), ..., (sum = sum + others));
                    },
                    y + part.first, (x[K] + part.first)...);
            }
            (std::make_index_sequence<Count>{});
        });
    }
};

/// y = the channels (or features) of x0, then those of x1, .. at each place of the image.
template <tensor::Shape First, tensor::Shape... Others>
struct concatenate_layer {
    static constexpr std::size_t count = 1 + sizeof...(Others);
    static constexpr std::size_t places = First::size / First::extents[First::rank - 1];
    static constexpr std::array<std::size_t, count> channels{First::size / places, (Others::size / places)...};
    static constexpr std::size_t width = (First::size + ... + Others::size) / places;

    /// First with another last extent.
    template <class Index>
    struct widened;
    template <std::size_t... Index>
    struct widened<std::index_sequence<Index...>> {
        using type = tensor::shape<(Index + 1 == First::rank ? width : First::extents[Index])...>;
    };

    using input = First;
    using output = typename widened<std::make_index_sequence<First::rank>>::type;
    static constexpr std::string_view name = "concatenate";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    static constexpr layer_api::traits traits{.inputs = count, .needs_x = false, .needs_y = false};

    void forward(const auto& pass) const noexcept {
        parallel::for_blocks(pass.use.team, pass.y.rows, 1, [&](parallel::block part) {
            for (std::size_t place = part.first * places; place < part.last * places; ++place) {
                auto* to = pass.y.data + place * width;
                for (std::size_t k = 0; k < count; ++k)
                    to = std::copy_n(pass.x[k] + place * channels[k], channels[k], to);
            }
        });
    }
    void backward(const auto& pass) const noexcept {
        parallel::for_blocks(pass.use.team, pass.dy.rows, 1, [&](parallel::block part) {
            for (std::size_t place = part.first * places; place < part.last * places; ++place) {
                const auto* from = pass.dy.data + place * width;
                for (std::size_t k = 0; k < count; from += channels[k++])
                    if (pass.dx[k] != nullptr) std::copy_n(from, channels[k], pass.dx[k] + place * channels[k]);
            }
        });
    }
};

/// The paths of a sum give one shape.
template <class First, class... Others>
inline constexpr bool shapes_agree = (std::is_same_v<First, Others> && ...);
/// The paths of a concatenation give shapes that differ in their last extent alone.
template <class First, class... Others>
inline constexpr bool places_agree = ([] {
    if (First::rank != Others::rank) return false;
    for (std::size_t i = 0; i + 1 < First::rank; ++i)
        if (First::extents[i] != Others::extents[i]) return false;
    return true;
}() && ...);

/// What stands at the end of residual{..}.
struct residual_join {
    template <class Input, class Output>
    constexpr auto on(Input, Output) const {
        static_assert(shapes_agree<Input, Output>,
                      "lockstep: the layers of a residual give another shape than they take; keep the shape, or write "
                      "add{path{..}, path{..}} "
                      "with a shortcut");
        if constexpr (shapes_agree<Input, Output>)
            return add_layer<2, Input>{};
        else
            return unbound<Input>{};
    }
};
/// What stands at the end of add{..}.
struct add_join {
    /// A single path: the combinator has said so.
    template <class First>
    constexpr auto on(First) const {
        return unbound<First>{};
    }
    template <class First, class Second, class... Others>
    constexpr auto on(First, Second, Others...) const {
        static_assert(shapes_agree<First, Second, Others...>,
                      "lockstep: the paths of an add give different shapes; give all of them the same rows, columns "
                      "and channels");
        if constexpr (shapes_agree<First, Second, Others...>)
            return add_layer<2 + sizeof...(Others), First>{};
        else
            return unbound<First>{};
    }
};
/// What stands at the end of concatenate{..}.
struct concatenate_join {
    /// A single path: the combinator has said so.
    template <class First>
    constexpr auto on(First) const {
        return unbound<First>{};
    }
    template <class First, class Second, class... Others>
    constexpr auto on(First, Second, Others...) const {
        static_assert(places_agree<First, Second, Others...>,
                      "lockstep: the paths of a concatenate give images of different rows or columns; only the "
                      "channels (the last extent) may differ");
        if constexpr (places_agree<First, Second, Others...>)
            return concatenate_layer<First, Second, Others...>{};
        else
            return unbound<First>{};
    }
};

}  // namespace lockstep::layer_api
