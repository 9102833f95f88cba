// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a layer is handed for one forward or backward run: named fields, so that a later field breaks no user's layer.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/core/random.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/layers/lane_summation.hpp"
#include "lockstep/layers/traits.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/lanes.hpp"
#include "lockstep/tensor/parameter.hpp"

namespace lockstep::layer_api {

enum class mode : std::uint8_t { training, inference };

/// The parameters of a layer (or their gradients), numbered as the layer declares them: w[0], w[1], ..
template <class T, class L>
struct parameters {
    T* data = nullptr;  ///< of the first one; the others follow

    /// All numbers of parameter `index`, rows x columns.
    [[nodiscard]] constexpr std::span<T> operator[](std::size_t index) const noexcept {
        return {data + tensor::offset_of(L::parameters, index), L::parameters[index].size()};
    }
};

/// Numbers of a layer that are not learned but averaged over the lanes of the minibatch, such as the means of a
/// normalisation: `static constexpr std::array statistics{tensor::parameter{..}, ..}`. None for a layer that does not
/// declare them.
template <class L>
inline constexpr std::array<tensor::parameter, 0> statistics_of{};
template <class L>
    requires requires { L::statistics.size(); }
inline constexpr auto statistics_of<L> = L::statistics;

/// The statistics of a layer, numbered as the layer declares them: s[0], s[1], ..
template <class T, class L>
struct statistics {
    T* data = nullptr;  ///< of the first one; the others follow

    /// All numbers of statistic `index`.
    [[nodiscard]] constexpr std::span<T> operator[](std::size_t index) const noexcept {
        return {data + tensor::offset_of(statistics_of<L>, index), statistics_of<L>[index].size()};
    }
};

/// What a layer reads, or where it writes the gradient: rows of its input; of a join the first number of each value,
/// with as many rows as y.
template <class T, class L>
using inputs_of =
    std::conditional_t<is_join<L>, std::array<T*, traits_of<L>.inputs>, tensor::batch<T, typename L::input>>;

/// Which of a sample's features this rank computes: all of them, or its part of a layer that a model partition has cut.
struct features {
    std::size_t first = 0;  ///< the first one of this rank
    std::size_t total = 0;  ///< of the whole, uncut layer output
};

/// One forward run over all rows that this rank has. Every row's result depends on that row alone, or on the rows of
/// its lane.
template <class T, class L>
struct forward_pass {
    /// float or double.
    using value_type = T;

    inputs_of<const T, L> x{};                            ///< rows x the input shape
    tensor::batch<T, typename L::output> y{};             ///< rows x the output shape, to be written
    tensor::batch<const T, typename L::output> addend{};  ///< of a layer that has one
    parameters<const T, L> w{};                           ///< weights of this step
    std::span<std::byte> saved{};  ///< saved_bytes<L, T> for each row: what backward needs besides x and y
    kernels::resources<T> use{};   ///< threads, and scratch_size<T>(layer, rows, lanes, team) elements
    layer_api::mode mode = layer_api::mode::training;       ///< inference: no dropout, running statistics
    core::random_stream random{0, core::purpose::dropout};  ///< of this layer in this step
    std::size_t first_row = 0;                              ///< number of the first row in the global minibatch
    layer_api::features features{0, L::output::size};       ///< of y, on this rank

    const tensor::lane_set* lanes = nullptr;         ///< training: how the rows are cut into lanes; inference: null
    layer_api::statistics<const T, L> statistics{};  ///< the running values, for inference
    T* observed = nullptr;  ///< training: node i of the lane tree gets its sum at observed + i observed_stride
    std::size_t observed_stride = 0;  ///< numbers
    T* observed_partials = nullptr;  ///< as `partials` of a backward pass, for the statistics

    /// Training: calls f(rows, s) for each lane: f writes into s[0], s[1], .. (every element of them) rows x the
    /// statistic of the lane, zeros for an empty lane. The lanes of all ranks are added over the fixed tree and divided
    /// by the rows of the minibatch; what comes out is given to the layer's `absorb(running, observed)` at the end of
    /// the step, on every rank alike.
    template <class F>
    void each_lane_observed(F&& f) const {
        add_lanes<tensor::total_size(statistics_of<L>)>(
            *lanes, observed, observed_stride, observed_partials, use.team,
            [&](parallel::block rows, T* to) { f(rows, layer_api::statistics<T, L>{to}); });
    }
    /// The same of a layer that deals_lanes: f(rows, s, use) may run on several threads at once, for a lane each, and
    /// `use` is what it may use.
    template <class F>
    void deal_lanes_observed(F&& f) const {
        static_assert(traits_of<L>.deals_lanes, "lockstep: a layer that deals lanes to threads has deals_lanes = true");
        if (!threads_take_lanes(lanes->count(), use.team))
            return each_lane_observed(
                [&](parallel::block rows, const layer_api::statistics<T, L>& s) { f(rows, s, use); });
        add_dealt_lanes<tensor::total_size(statistics_of<L>)>(
            *lanes, observed, observed_stride, observed_partials, use.team,
            [&](parallel::block rows, T* to, std::size_t thread) {
                f(rows, layer_api::statistics<T, L>{to}, dealt_part(use, thread));
            });
    }
};

/// One backward run: writes the gradient with respect to the parameters, then dx = the gradient with respect to x.
template <class T, class L>
struct backward_pass {
    /// float or double.
    using value_type = T;

    inputs_of<const T, L> x{};                        ///< what forward read; null data without needs_x
    tensor::batch<const T, typename L::output> y{};   ///< what forward wrote; null data without needs_y
    tensor::batch<const T, typename L::output> dy{};  ///< the gradient of the loss with respect to y
    tensor::batch<const T, typename L::output>
        more_dy{};         ///< to be added to dy by a layer that sums_gradient; data is null where there is none
    inputs_of<T, L> dx{};  ///< null where it is not asked for: before the first layer
    tensor::batch<T, typename L::output> daddend{};         ///< of a layer that has_addend
    parameters<const T, L> w{};                             ///< weights of this step
    std::span<const std::byte> saved{};                     ///< what forward has kept
    kernels::resources<T> use{};                            ///< threads and scratch, as in forward
    core::random_stream random{0, core::purpose::dropout};  ///< the words of forward
    std::size_t first_row = 0;                              ///< as in forward
    layer_api::features features{0, L::output::size};       ///< as in forward

    const tensor::lane_set* lanes = nullptr;  ///< how the rows are cut into lanes
    T* gradient = nullptr;                    ///< node s of the lane tree gets its sum at gradient + s stride
    std::size_t stride = 0;                   ///< numbers
    T* partials =
        nullptr;  ///< tree_depth(lanes) gradients of this layer, for each_lane; kept_lanes(lanes, team) for deal_lanes

    /// Not of a join, which looks at each of its dx.
    [[nodiscard]] constexpr bool wants_dx() const noexcept { return dx.data != nullptr; }
    /// Always, but for a layer that has_factors.
    [[nodiscard]] constexpr bool wants_gradient() const noexcept { return gradient != nullptr; }

    /// Where node `index` of lanes->trees() wants its gradients.
    [[nodiscard]] constexpr parameters<T, L> gradient_of(std::size_t index) const noexcept {
        return {gradient + index * stride};
    }

    /// Calls f(rows, g) for each lane: f writes into g[0], g[1], .. (every element of them) the gradient that these
    /// rows give. The lanes are added over the fixed tree. Memory: one gradient of the layer for each level of the
    /// tree.
    template <class F>
    void each_lane(F&& f) const {
        add_lanes<tensor::total_size(L::parameters)>(
            *lanes, gradient, stride, partials, use.team,
            [&](parallel::block rows, T* to) { f(rows, parameters<T, L>{to}); });
    }
    /// The same of a layer that deals_lanes: f(rows, g, use) may run on several threads at once, for a lane each, and
    /// `use` is what it may use.
    template <class F>
    void deal_lanes(F&& f) const {
        static_assert(traits_of<L>.deals_lanes, "lockstep: a layer that deals lanes to threads has deals_lanes = true");
        if (!threads_take_lanes(lanes->count(), use.team))
            return each_lane([&](parallel::block rows, const parameters<T, L>& g) { f(rows, g, use); });
        add_dealt_lanes<tensor::total_size(L::parameters)>(*lanes, gradient, stride, partials, use.team,
                                                           [&](parallel::block rows, T* to, std::size_t thread) {
                                                               f(rows, parameters<T, L>{to}, dealt_part(use, thread));
                                                           });
    }
};

}  // namespace lockstep::layer_api
