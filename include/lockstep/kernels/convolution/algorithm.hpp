// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The algorithms of a convolution: a rule that picks one from the geometry alone, and one function for each pass.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/im2col.hpp"
#include "lockstep/kernels/convolution/winograd/winograd.hpp"
#include "lockstep/kernels/convolution/winograd/winograd_weights.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels {

/// direct: one chain over all products. winogradM: F(M x M, 3 x 3), see winograd_forward for errors. im2col: a product
/// of copied patches.
enum class algorithm { direct, winograd2, winograd4, winograd6, im2col };
inline constexpr std::array algorithms{algorithm::direct, algorithm::winograd2, algorithm::winograd4,
                                       algorithm::winograd6, algorithm::im2col};

enum class convolution_pass { forward, backward_data, backward_weights };
inline constexpr std::array convolution_passes{convolution_pass::forward, convolution_pass::backward_data,
                                               convolution_pass::backward_weights};

[[nodiscard]] constexpr std::string_view name(algorithm a) noexcept {
    constexpr std::array<std::string_view, algorithms.size()> names{"direct", "winograd2", "winograd4", "winograd6",
                                                                    "im2col"};
    return names[static_cast<std::size_t>(a)];
}
[[nodiscard]] constexpr std::string_view name(convolution_pass pass) noexcept {
    constexpr std::array<std::string_view, convolution_passes.size()> names{"forward", "backward_data",
                                                                            "backward_weights"};
    return names[static_cast<std::size_t>(pass)];
}

/// Whether an algorithm can compute this convolution.
[[nodiscard]] constexpr bool applies(algorithm a, const convolution& g) noexcept {
    if (a == algorithm::direct) return true;
    return a == algorithm::im2col ? !g.is_dilated() && g.groups == 1 : winograd_applies(g);
}

namespace detail {

/// Pairs of output and kernel position along one dimension whose input lies inside of the image.
[[nodiscard]] constexpr std::size_t inside_pairs(std::size_t outputs, std::size_t pad, std::size_t size) noexcept {
    std::size_t pairs = 0;
    for (std::size_t tap = 0; tap < 3; ++tap)
        pairs += inside(outputs, 1, -static_cast<std::ptrdiff_t>(pad), tap, size).size();
    return pairs;
}

/// Model of the time of one sample, in multiply-adds at full speed; it is the same on every machine. Vectors are taken
/// to be 8 wide, lines 16: with 16 wide ones the ratios hold, for Winograd's lines are shorter where channels are few.
/// Constants were fitted to measurements on 8 to 512 channels and images of 2 x 2 to 32 x 32 pixels: what a link of a
/// chain costs beside its multiply-adds, and what an element of a transformed tile and of a transformed weight costs;
/// weights are shared by a minibatch.
struct algorithm_cost {
    double channels, filters, channel_lines, filter_lines;
    convolution_pass pass;
    convolution g;

    constexpr algorithm_cost(const convolution& geometry, convolution_pass which) noexcept
        : channels{static_cast<double>(geometry.channels)},
          filters{static_cast<double>(geometry.filters)},
          channel_lines{static_cast<double>(round_up(geometry.channels, 16))},
          filter_lines{static_cast<double>(round_up(geometry.filters, 16))},
          pass{which},
          g{geometry} {}

    /// Transformed elements; a line that is not full is copied on the way.
    [[nodiscard]] static constexpr double spread(std::size_t n) noexcept {
        return static_cast<double>(n % 16 == 0 ? n : 2 * round_up(n, 16));
    }
    [[nodiscard]] constexpr double direct() const noexcept {
        const double chains = pass == convolution_pass::backward_data ? static_cast<double>(round_up(g.channels, 8))
                                                                      : static_cast<double>(round_up(g.filters, 8));
        const double links = pass == convolution_pass::backward_data ? filters : channels;
        const double all = 9 * static_cast<double>(g.out_rows() * g.out_columns()) * links * chains;
        if (pass == convolution_pass::backward_weights) return all;
        // Windows over the padding are cut where that is less work, at the price of loading and storing the sums for
        // each kernel position.
        const double seen = static_cast<double>(inside_pairs(g.out_rows(), g.pad_top, g.rows) *
                                                inside_pairs(g.out_columns(), g.pad_left, g.columns));
        return std::min(all, seen * (links + 5) * chains);
    }
    [[nodiscard]] constexpr double winograd(std::size_t m) const noexcept {
        const bool back = pass == convolution_pass::backward_data;
        const auto edge = static_cast<double>((m + 2) * (m + 2));
        const auto tiles = static_cast<double>(quotient_up(back ? g.rows : g.out_rows(), m) *
                                               quotient_up(back ? g.columns : g.out_columns(), m));
        const double products = back ? filters * channel_lines : channels * filter_lines;
        const double minibatch = pass == convolution_pass::backward_weights ? 4 : 16;
        return edge * (tiles * (products + 10 * (spread(g.channels) + spread(g.filters))) +
                       12 * channels * filters / minibatch);
    }
};

}  // namespace detail

/// The algorithm for one pass: a function of the geometry alone, so that it may be part of a recipe. Winograd has to
/// save a fifth of the time of the direct algorithm by a model of it. winograd6 is never picked: it errs four times as
/// much as winograd4 and is seldom faster.
[[nodiscard]] constexpr algorithm preferred_algorithm(const convolution& g, convolution_pass pass) noexcept {
    if (!winograd_applies(g) || detail::is_empty(g)) return algorithm::direct;
    const detail::algorithm_cost cost{g, pass};
    const double two = cost.winograd(2);
    const double four = cost.winograd(4);
    if (std::min(two, four) > 0.8 * cost.direct()) return algorithm::direct;
    return two <= four ? algorithm::winograd2 : algorithm::winograd4;
}

/// For sizes that the compiler knows: whether a pass of the algorithm is narrow.
template <class T>
[[nodiscard]] constexpr narrow known_narrow(algorithm a, const convolution& g, convolution_pass pass) noexcept {
    const bool is = a != algorithm::direct                    ? detail::takes_short_lines<T>(g)
                    : pass == convolution_pass::backward_data ? detail::prefers_few_channels_data<T>(g)
                    : pass == convolution_pass::forward       ? detail::prefers_few_filters_forward<T>(g)
                                                              : detail::prefers_few_filters_weights<T>(g);
    return is ? narrow::yes : narrow::no;
}

/// For sizes that the compiler knows: the ways of the direct engine that a pass takes.
template <class T>
[[nodiscard]] constexpr detail::direct_ways known_ways(algorithm a, const convolution& g,
                                                       convolution_pass pass) noexcept {
    detail::direct_ways ways = detail::direct_ways::none();
    if (a != algorithm::direct || detail::is_empty(g) || known_narrow<T>(a, g, pass) == narrow::yes) return ways;
    if (pass == convolution_pass::forward) {
        detail::add_ways<T>(ways, detail::forward_sliding(g), g.group_filters());
    } else if (pass == convolution_pass::backward_weights) {
        detail::add_outer_ways<T>(ways, detail::forward_sliding(g), g.group_filters(), g.filters);
    } else if (detail::stride_two<T>::fits(g)) {
        ways.stride_two = true;
    } else {
        detail::for_phases(g, [&](std::size_t, std::size_t, const detail::phase& down, const detail::phase& across) {
            detail::add_ways<T>(ways, detail::phase_sliding(g, down, across), g.group_channels());
        });
    }
    return ways;
}

/// A rule: the algorithm of one pass from the geometry alone.
using algorithm_rule = algorithm (*)(const convolution&, convolution_pass) noexcept;

/// The rule of those who want the least rounding, or to see what Winograd brings.
[[nodiscard]] constexpr algorithm always_direct(const convolution&, convolution_pass) noexcept {
    return algorithm::direct;
}

namespace detail {

/// M of winogradM.
[[nodiscard]] constexpr std::size_t output_tile(algorithm a) noexcept { return 2 * static_cast<std::size_t>(a); }

/// Calls f with the algorithm as a constant.
template <class F>
constexpr decltype(auto) with_algorithm(algorithm a, F&& f) {
    switch (a) {
        case algorithm::winograd2:
            return f(std::integral_constant<algorithm, algorithm::winograd2>{});
        case algorithm::winograd4:
            return f(std::integral_constant<algorithm, algorithm::winograd4>{});
        case algorithm::winograd6:
            return f(std::integral_constant<algorithm, algorithm::winograd6>{});
        case algorithm::im2col:
            return f(std::integral_constant<algorithm, algorithm::im2col>{});
        case algorithm::direct:
            break;
    }
    return f(std::integral_constant<algorithm, algorithm::direct>{});
}

}  // namespace detail

/// Elements of scratch of convolve_forward for at most `batch` samples.
template <algorithm A, class T, narrow Narrow = narrow::automatic>
[[nodiscard]] constexpr std::size_t convolve_forward_scratch(const convolution& g, std::size_t batch,
                                                             parallel::team team) noexcept {
    if constexpr (A == algorithm::direct)
        return convolution_forward_scratch<T, Narrow>(g, batch, team);
    else if constexpr (A == algorithm::im2col)
        return im2col_forward_scratch<T>(g, batch, team);
    else
        return winograd_forward_scratch<detail::output_tile(A), T, Narrow>(g, batch, team);
}
template <class T>
[[nodiscard]] constexpr std::size_t convolve_forward_scratch(algorithm a, const convolution& g, std::size_t batch,
                                                             parallel::team team) noexcept {
    return detail::with_algorithm(a, [&](auto known) { return convolve_forward_scratch<known, T>(g, batch, team); });
}

/// y = x * w + bias by the algorithm named, which must apply to the geometry: see convolution_forward,
/// winograd_forward, im2col_forward. Constant A, Narrow and Ways compile
/// this algorithm only.
template <algorithm A, class T, narrow Narrow = narrow::automatic, detail::direct_ways Ways = detail::direct_ways{}>
void convolve_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                      resources<T> use) noexcept {
    if constexpr (A == algorithm::direct)
        convolution_forward<T, Narrow, Ways>(g, batch, x, w, bias, y, use);
    else if constexpr (A == algorithm::im2col)
        im2col_forward(g, batch, x, w, bias, y, use);
    else
        winograd_forward<detail::output_tile(A), T, Narrow>(g, batch, x, w, bias, y, use);
}
template <class T>
void convolve_forward(algorithm a, const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                      resources<T> use) noexcept {
    detail::with_algorithm(a, [&](auto known) { convolve_forward<known>(g, batch, x, w, bias, y, use); });
}

/// Elements of scratch of convolve_backward_data for at most `batch` samples.
template <algorithm A, class T, narrow Narrow = narrow::automatic>
[[nodiscard]] constexpr std::size_t convolve_backward_data_scratch(const convolution& g, std::size_t batch,
                                                                   parallel::team team) noexcept {
    if constexpr (A == algorithm::direct)
        return convolution_backward_data_scratch<T, Narrow>(g, batch, team);
    else if constexpr (A == algorithm::im2col)
        return im2col_backward_data_scratch<T>(g, batch, team);
    else
        return winograd_backward_data_scratch<detail::output_tile(A), T, Narrow>(g, batch, team);
}
template <class T>
[[nodiscard]] constexpr std::size_t convolve_backward_data_scratch(algorithm a, const convolution& g, std::size_t batch,
                                                                   parallel::team team) noexcept {
    return detail::with_algorithm(a,
                                  [&](auto known) { return convolve_backward_data_scratch<known, T>(g, batch, team); });
}

/// dx from dy by the algorithm named, which must apply to the geometry: see convolution_backward_data,
/// winograd_backward_data, im2col_backward_data. Constant A, Narrow and Ways compile
/// this algorithm only.
template <algorithm A, class T, narrow Narrow = narrow::automatic, detail::direct_ways Ways = detail::direct_ways{}>
void convolve_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                            resources<T> use) noexcept {
    if constexpr (A == algorithm::direct)
        convolution_backward_data<T, Narrow, Ways>(g, batch, dy, w, dx, use);
    else if constexpr (A == algorithm::im2col)
        im2col_backward_data(g, batch, dy, w, dx, use);
    else
        winograd_backward_data<detail::output_tile(A), T, Narrow>(g, batch, dy, w, dx, use);
}
template <class T>
void convolve_backward_data(algorithm a, const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                            resources<T> use) noexcept {
    detail::with_algorithm(a, [&](auto known) { convolve_backward_data<known>(g, batch, dy, w, dx, use); });
}

/// Elements of scratch of convolve_backward_weights for at most `batch` samples.
template <algorithm A, class T, narrow Narrow = narrow::automatic>
[[nodiscard]] constexpr std::size_t convolve_backward_weights_scratch(const convolution& g, std::size_t batch,
                                                                      parallel::team team) noexcept {
    if constexpr (A == algorithm::direct)
        return convolution_backward_weights_scratch<T, Narrow>(g, batch, team);
    else if constexpr (A == algorithm::im2col)
        return im2col_backward_weights_scratch<T>(g, batch, team);
    else
        return winograd_backward_weights_scratch<detail::output_tile(A), T, Narrow>(g, batch, team);
}
template <class T>
[[nodiscard]] constexpr std::size_t convolve_backward_weights_scratch(algorithm a, const convolution& g,
                                                                      std::size_t batch, parallel::team team) noexcept {
    return detail::with_algorithm(
        a, [&](auto known) { return convolve_backward_weights_scratch<known, T>(g, batch, team); });
}

/// dw and dbias by the algorithm named, which must apply to the geometry: see convolution_backward_weights,
/// winograd_backward_weights, im2col_backward_weights. Constant A, Narrow and Ways compile
/// this algorithm only.
template <algorithm A, class T, narrow Narrow = narrow::automatic, detail::direct_ways Ways = detail::direct_ways{}>
void convolve_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                               resources<T> use) noexcept {
    if constexpr (A == algorithm::direct)
        convolution_backward_weights<T, Narrow, Ways>(g, batch, x, dy, dw, dbias, use);
    else if constexpr (A == algorithm::im2col)
        im2col_backward_weights(g, batch, x, dy, dw, dbias, use);
    else
        winograd_backward_weights<detail::output_tile(A), T, Narrow>(g, batch, x, dy, dw, dbias, use);
}
template <class T>
void convolve_backward_weights(algorithm a, const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw,
                               T* dbias, resources<T> use) noexcept {
    detail::with_algorithm(a, [&](auto known) { convolve_backward_weights<known>(g, batch, x, dy, dw, dbias, use); });
}

}  // namespace lockstep::kernels
