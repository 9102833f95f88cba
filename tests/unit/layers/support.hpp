// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of layers share: one layer run forward and backward on exactly the memory it asked for, and a list of
// all layers.

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/depthwise_conv.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/layer_norm.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "unit/kernels/common.hpp"

namespace layer_test {

using namespace kernel_test;
using tensor::shape;

template <class Spec, class Input>
using layer_of = decltype(std::declval<const Spec&>().on(Input{}));

/// A layer as it stands in a network, with its input.
template <class Spec, class Input>
struct placed {
    using spec = Spec;
    using layer = layer_of<Spec, Input>;
};

using rectangle =
    layers::conv<3, layers::rows_and_columns{2, 3}, layers::conv_options{.stride = {2, 1}, .padding = {1, 0}}>;
using dilated_groups =
    layers::conv<6, layers::rows_and_columns{3, 2},
                 layers::conv_options{
                     .stride = {1, 2}, .padding = {1, 1}, .dilation = {2, 3}, .groups = 2, .bias = layers::bias::none}>;

/// A batch normalisation with the relu after it.
struct batch_norm_relu {
    template <tensor::Shape Input>
    constexpr auto on(Input input) const {
        return layers::batch_norm{}.on(input).template with_epilogue<layer_api::epilogue::relu>();
    }
};

/// Every layer with parameters, and every other layer that computes something.
using weighted_layers = std::tuple<
    placed<layers::dense<1>, shape<1>>, placed<layers::dense<5>, shape<7>>, placed<layers::dense<20>, shape<3>>,
    placed<layers::conv<4, 3>, shape<5, 6, 3>>,
    placed<layers::conv<3, 3, layers::conv_options{.stride = 2, .padding = 1}>, shape<6, 5, 1>>,
    placed<layers::conv<2, 3, layers::conv_options{.padding = 1}>, shape<4, 4, 3>>,
    placed<layers::conv<5, 1>, shape<3, 2, 2>>,
    placed<layers::conv<2, 2, layers::conv_options{.stride = 3, .padding = 1}>, shape<5, 5, 2>>,
    placed<rectangle, shape<5, 6, 2>>, placed<dilated_groups, shape<6, 5, 4>>,
    placed<layers::depthwise_conv<3, layers::conv_options{.stride = 2, .padding = 1}>, shape<4, 5, 3>>,
    placed<layers::conv_max_pool<4, 3>, shape<6, 7, 3>>,
    placed<layers::conv_max_pool<6, 5, layers::conv_max_pool_options{.padding = 2}>, shape<6, 9, 1>>,
    placed<layers::conv_max_pool<
               3, 3, layers::conv_max_pool_options{.stride = 2, .padding = 1, .window = 3, .bias = layers::bias::none}>,
           shape<11, 12, 2>>,
    placed<layers::batch_norm, shape<3, 2, 5>>, placed<layers::batch_norm, shape<2, 2, 9>>,
    placed<layers::batch_norm, shape<11>>, placed<batch_norm_relu, shape<3, 2, 5>>, placed<batch_norm_relu, shape<11>>,
    placed<layers::layer_norm, shape<7>>, placed<layers::layer_norm, shape<2, 3, 6>>>;
using weightless_layers =
    std::tuple<placed<layers::max_pool<2>, shape<5, 4, 3>>, placed<layers::max_pool<3, 2>, shape<7, 7, 2>>,
               placed<layers::max_pool<3, 1>, shape<4, 5, 1>>, placed<layers::mean_pool<2>, shape<5, 4, 3>>,
               placed<layers::mean_pool<3, 2>, shape<7, 7, 2>>, placed<layers::relu, shape<13>>,
               placed<layers::relu, shape<3, 4, 2>>, placed<layers::mean_pool<3, 1>, shape<4, 5, 9>>,
               placed<layers::global_mean_pool, shape<3, 4, 5>>, placed<layers::tanh, shape<13>>,
               placed<layers::tanh, shape<3, 4, 2>>, placed<layers::sigmoid, shape<13>>,
               placed<layers::sigmoid, shape<3, 4, 2>>, placed<layers::gelu, shape<13>>,
               placed<layers::gelu, shape<3, 4, 2>>, placed<layers::local_response_norm<5>, shape<2, 2, 11>>,
               placed<layers::local_response_norm<3>, shape<2>>, placed<layers::dropout, shape<13>>,
               placed<layers::dropout, shape<3, 4, 2>>>;
using all_layers = decltype(std::tuple_cat(weighted_layers{}, weightless_layers{}));

/// One layer with its input and weights.
template <class T, class L>
struct problem {
    static constexpr std::size_t weights = tensor::total_size(L::parameters);

    std::size_t rows = 0;
    array<T> x{};
    array<T> w{};
    L layer{};
    parallel::team team{1};
    layer_api::mode mode = layer_api::mode::training;
    core::random_stream random{3, core::purpose::dropout, 1, 2};
    std::size_t first_row = 0;
    layer_api::features features{0, L::output::size};
    const tensor::lane_set* lanes = nullptr;  ///< of forward; null: one lane of all rows
    array<T> running{};                       ///< statistics, for inference
    array<T> addend{};                        ///< of a layer that has one
    array<T> more_dy{};                       ///< of a layer that sums its gradient
    bool in_place = false;                    ///< y is the memory of x, dx that of dy

    /// Rows first .. first + count - 1 on their own.
    [[nodiscard]] problem part(std::size_t first, std::size_t count) const {
        problem out = *this;
        out.rows = count;
        out.x.assign(x.begin() + static_cast<std::ptrdiff_t>(first * L::input::size),
                     x.begin() + static_cast<std::ptrdiff_t>((first + count) * L::input::size));
        if (!addend.empty())
            out.addend.assign(addend.begin() + static_cast<std::ptrdiff_t>(first * L::output::size),
                              addend.begin() + static_cast<std::ptrdiff_t>((first + count) * L::output::size));
        out.first_row = first_row + first;
        out.lanes = nullptr;
        return out;
    }
};

template <class T>
struct forward_result {
    array<T> y;
    array<std::byte> saved;
    std::vector<array<T>> observed{};  ///< statistics of the nodes of the lane tree
};

template <class T>
struct backward_result {
    array<T> dx;                  ///< empty where it was not asked for
    std::vector<array<T>> nodes;  ///< gradients of the nodes of the lane tree
    array<T> daddend{};
};

inline tensor::lane_set one_lane(std::size_t rows) {
    tensor::lane_set out{1, {0, 1}};
    out.assign(std::vector<std::size_t>{rows});
    return out;
}

template <class T, class L>
forward_result<T> forward(const problem<T, L>& of, std::size_t lanes = 1) {
    constexpr std::size_t n = tensor::total_size(layer_api::statistics_of<L>), gap = 2;
    const auto alone = one_lane(of.rows);
    const tensor::lane_set& cut = of.lanes ? *of.lanes : alone;
    forward_result<T> out{unwritten<T>(of.rows * L::output::size),
                          array<std::byte>(of.rows * layer_api::saved_bytes<L, T>, std::byte{99})};
    scratch<T> s(layer_api::scratch_size<T>(of.layer, of.rows, std::max(lanes, cut.count()), of.team), of.team);
    auto observed = unwritten<T>(cut.trees().size() * (n + gap));
    auto partials = unwritten<T>(n * layer_api::partial_sums<L>(cut.count(), of.team));
    const bool trains = of.mode == layer_api::mode::training;
    if (of.in_place) std::copy(of.x.begin(), of.x.end(), out.y.begin());
    of.layer.forward(layer_api::forward_pass<T, L>{.x = {of.in_place ? out.y.data() : of.x.data(), of.rows},
                                                   .y = {out.y.data(), of.rows},
                                                   .addend = {of.addend.data(), of.rows},
                                                   .w = {of.w.data()},
                                                   .saved = out.saved,
                                                   .use = s.use,
                                                   .mode = of.mode,
                                                   .random = of.random,
                                                   .first_row = of.first_row,
                                                   .features = of.features,
                                                   .lanes = trains ? &cut : nullptr,
                                                   .statistics = {of.running.data()},
                                                   .observed = trains ? observed.data() : nullptr,
                                                   .observed_stride = n + gap,
                                                   .observed_partials = partials.data()});
    for (std::size_t node = 0; trains && node < cut.trees().size(); ++node) {
        const auto first = observed.begin() + static_cast<std::ptrdiff_t>(node * (n + gap));
        out.observed.emplace_back(first, first + static_cast<std::ptrdiff_t>(n));
    }
    return out;
}

template <class T, class L>
backward_result<T> backward(const problem<T, L>& of, const forward_result<T>& ran, const array<T>& dy,
                            const tensor::lane_set& lanes, bool wants_dx = true) {
    constexpr std::size_t n = problem<T, L>::weights, gap = 3;
    backward_result<T> out{unwritten<T>(wants_dx ? of.rows * L::input::size : 0), {}};
    auto gradient = unwritten<T>(lanes.trees().size() * (n + gap));
    auto partials = unwritten<T>(layer_api::traits_of<L>.adds_lanes ? 0 : n * layer_api::partial_sums<L>(lanes.count(), of.team));
    scratch<T> s(layer_api::scratch_size<T>(of.layer, of.rows, lanes.count(), of.team), of.team);
    T nothing{};  // so that dx of no rows is not null
    // The gradient of an addend takes the place of dy, else that of x does.
    if (layer_api::traits_of<L>.has_addend)
        out.daddend = of.in_place ? dy : unwritten<T>(dy.size());
    else if (of.in_place)
        std::copy(dy.begin(), dy.end(), out.dx.begin());
    const T* const gradients = !of.in_place ? dy.data() : layer_api::traits_of<L>.has_addend ? out.daddend.data() : out.dx.data();
    of.layer.backward(
        layer_api::backward_pass<T, L>{.x = {of.x.data(), of.rows},
                                       .y = {ran.y.data(), of.rows},
                                       .dy = {gradients, of.rows},
                                       .more_dy = {of.more_dy.empty() ? nullptr : of.more_dy.data(), of.rows},
                                       .dx = {wants_dx ? (of.rows == 0 ? &nothing : out.dx.data()) : nullptr, of.rows},
                                       .daddend = {out.daddend.data(), of.rows},
                                       .w = {of.w.data()},
                                       .saved = ran.saved,
                                       .use = s.use,
                                       .random = of.random,
                                       .first_row = of.first_row,
                                       .features = of.features,
                                       .lanes = &lanes,
                                       .gradient = gradient.data(),
                                       .stride = n + gap,
                                       .partials = partials.data()});
    for (std::size_t node = 0; node < lanes.trees().size(); ++node) {
        const auto begin = gradient.begin() + static_cast<std::ptrdiff_t>(node * (n + gap));
        out.nodes.emplace_back(begin, begin + n);
        for (std::size_t i = n; i < n + gap; ++i) REQUIRE(std::isnan(gradient[node * (n + gap) + i]));
    }
    return out;
}

/// Runs of lanes with even, uneven, empty and single lanes, at the beginning, the end and in the middle of the
/// minibatch.
inline std::vector<tensor::lane_set> lane_cuts() {
    struct cut {
        parallel::block run;
        std::vector<std::size_t> lengths;
    };
    std::vector<tensor::lane_set> out;
    for (const auto& [run, lengths] :
         {cut{{0, 1}, {7}}, cut{{0, 8}, {3, 3, 3, 3, 2, 3, 3, 2}}, cut{{0, 5}, {1, 0, 4, 0, 2}},
          cut{{1, 4}, {2, 1, 2, 3, 1}}, cut{{3, 11}, {1, 1, 1, 2, 1, 1, 0, 3, 1, 1, 2, 9, 9}},
          cut{{5, 7}, {4, 4, 4, 4, 4, 1, 2}}, cut{{0, 3}, {0, 0, 0}}, cut{{2, 2}, {1, 1, 1}}}) {
        out.emplace_back(lengths.size(), run);
        out.back().assign(lengths);
    }
    return out;
}

/// The tree by its definition: a node of several lanes is the sum of its two halves. `of(rows)` is the gradient of one
/// lane.
template <class F>
auto node_sum(std::span<const parallel::block> lanes, F&& of) {
    if (lanes.size() == 1) return of(lanes[0]);
    const std::size_t half = std::bit_ceil(lanes.size()) / 2;
    auto left = node_sum(lanes.first(half), of);
    const auto right = node_sum(lanes.subspan(half), of);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
    return left;
}

/// Whether each node holds, bit by bit, the sum of its lanes.
template <class T, class F>
bool adds_over_tree(const backward_result<T>& got, const tensor::lane_set& lanes, F&& of) {
    if (got.nodes.size() != lanes.trees().size()) return false;
    for (std::size_t node = 0; node < got.nodes.size(); ++node)
        if (!same_bits(got.nodes[node], node_sum(lanes.blocks(lanes.trees()[node]), of))) return false;
    return true;
}

}  // namespace layer_test
