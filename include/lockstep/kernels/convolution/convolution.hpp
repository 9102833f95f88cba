// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Direct convolution of images whose channels lie innermost, and its two backward passes.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/correlate.hpp"
#include "lockstep/kernels/convolution/few_channels_backward_data.hpp"
#include "lockstep/kernels/convolution/few_filters_backward_weights.hpp"
#include "lockstep/kernels/convolution/few_filters_forward.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/outer_products.hpp"
#include "lockstep/kernels/convolution/phases.hpp"
#include "lockstep/kernels/convolution/stride_two.hpp"
#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"

namespace lockstep::kernels {

namespace detail {

/// What the filters of one group see.
[[nodiscard]] constexpr sliding forward_sliding(const convolution& g) noexcept {
    return {g.rows,
            g.columns,
            g.group_channels(),
            g.out_rows(),
            g.out_columns(),
            g.kernel_rows,
            g.kernel_columns,
            g.stride_rows,
            g.stride_columns,
            -static_cast<std::ptrdiff_t>(g.pad_top),
            -static_cast<std::ptrdiff_t>(g.pad_left),
            g.dilation_rows,
            g.dilation_columns,
            g.channels};
}

/// Whether planes are quicker for the weights, too: not where a tile holds all links, though it leaves most of a vector
/// of filters empty, because nothing is copied for it. Few filters leave too much of it empty.
template <class T>
[[nodiscard]] constexpr bool prefers_few_filters_weights(const convolution& g) noexcept {
    return prefers_few_filters_forward<T>(g) &&
           (4 * g.filters < simd::width<T> || !link_tile<T>::holds_kernel(forward_sliding(g), g.filters));
}

[[nodiscard]] constexpr bool is_empty(const convolution& g) noexcept {
    return g.out_rows() == 0 || g.out_columns() == 0;
}

}  // namespace detail

/// Whether a pass belongs to the kernels for few filters (forward, weights) or few channels (data gradient): the sizes
/// decide when it runs, or the caller knows. What is known not to be needed is not compiled.
enum class narrow { automatic, no, yes };

/// Elements of scratch of convolution_forward for at most `batch` samples.
template <class T, narrow Narrow = narrow::automatic>
[[nodiscard, gnu::noinline]] constexpr std::size_t convolution_forward_scratch(const convolution& g, std::size_t batch,
                                                                               parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    if constexpr (Narrow != narrow::no) {
        if (Narrow == narrow::yes || detail::prefers_few_filters_forward<T>(g))
            return detail::few_filters_tiles<T>{{g}}.scratch(batch, static_cast<std::size_t>(team.threads));
    }
    if constexpr (Narrow != narrow::yes) {
        const detail::sliding s = detail::forward_sliding(g);
        return s.links() * detail::round_up(g.group_filters(), detail::tile_columns<T>) +
               static_cast<std::size_t>(team.threads) * detail::copy_share<T>(s, g.group_filters(), batch, team);
    }
    return 0;
}

/// y = x * w + bias; bias has `filters` entries or is null. Each output is one chain of fused multiply-adds: it starts
/// from the bias and goes over kernel rows, kernel columns and channels of the group in this order; padding takes part
/// as zeros or is left out, as the sizes say. Few filters have another order, see few_filters_forward.hpp. Cost: batch
/// x flops(), one packed copy of w, one copy of x with padding or, where windows overlap little, of those that see
/// padding.
template <class T, narrow Narrow = narrow::automatic, detail::direct_ways Ways = detail::direct_ways{}>
void convolution_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                         resources<T> use) noexcept {
    if (detail::is_empty(g) || batch == 0) return;
    if constexpr (Narrow != narrow::no) {
        if (Narrow == narrow::yes || detail::prefers_few_filters_forward<T>(g))
            return detail::few_filters_forward(g, batch, x, w, bias, y, use);
    }
    if constexpr (Narrow != narrow::yes) {
        const detail::sliding s = detail::forward_sliding(g);
        constexpr std::size_t columns = detail::tile_columns<T>;
        const std::size_t filters = g.group_filters();
        const detail::output_pitch pitch{g.filters, g.out_columns() * g.filters, g.out_size()};
        T* const panels = use.scratch.data();
        for (std::size_t group = 0; group < g.groups; ++group, x += g.group_channels(), w += filters, y += filters) {
            parallel::for_blocks(use.team, filters, columns, [&](parallel::block mine) {
                detail::pack<columns>(s.links(), mine.size(), w + mine.first, g.filters,
                                      panels + mine.first * s.links(), s.links() * columns);
            });
            detail::correlate<Ways, T>({s, filters, x, panels, bias, y, pitch}, batch, use.team,
                                       panels + s.links() * detail::round_up(filters, columns));
            if (bias) bias += filters;
        }
    }
}

/// Elements of scratch of convolution_backward_data for at most `batch` samples.
template <class T, narrow Narrow = narrow::automatic>
[[nodiscard, gnu::noinline]] constexpr std::size_t convolution_backward_data_scratch(const convolution& g,
                                                                                     std::size_t batch,
                                                                                     parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    if constexpr (Narrow != narrow::no) {
        if (Narrow == narrow::yes || detail::prefers_few_channels_data<T>(g))
            return detail::few_channels_data_rows<T>{g}.scratch(static_cast<std::size_t>(team.threads));
    }
    if constexpr (Narrow != narrow::yes) {
        if (detail::stride_two<T>::fits(g))
            return detail::stride_two<T>{g}.scratch(batch, static_cast<std::size_t>(team.threads));
        std::size_t most = 0;
        detail::for_phases(g, [&](std::size_t, std::size_t, const detail::phase& down, const detail::phase& across) {
            const detail::sliding s = detail::backward_sliding(g, down, across);
            if (s.links() == 0) return;
            most = std::max(most, s.links() * detail::round_up(g.group_channels(), detail::tile_columns<T>) +
                                      static_cast<std::size_t>(team.threads) *
                                          detail::copy_share<T>(s, g.group_channels(), batch, team));
        });
        return most;
    }
    return 0;
}

/// dx = the gradient with respect to x, from dy. Each element is one chain from zero over output rows, output columns
/// and filters, in this order; few channels have it in another one, see few_channels_backward_data.hpp. A stride above
/// 1 makes stride_rows x stride_columns convolutions of stride 1, for each group, or all in one walk (stride_two.hpp);
/// padding takes part as zeros or is left out, as the sizes say. Cost: batch x flops(), one transposed copy of w.
template <class T, narrow Narrow = narrow::automatic, detail::direct_ways Ways = detail::direct_ways{}>
void convolution_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                               resources<T> use) noexcept {
    if (batch == 0) return;
    if (detail::is_empty(g)) {
        std::fill_n(dx, batch * g.in_size(), T{0});
        return;
    }
    if constexpr (Narrow != narrow::no) {
        if (Narrow == narrow::yes || detail::prefers_few_channels_data<T>(g))
            return detail::few_channels_backward_data(g, batch, dy, w, dx, use);
    }
    if constexpr (Narrow != narrow::yes) {
        if constexpr (simd::registers >= 32 && Ways.stride_two)
            if (detail::stride_two<T>::fits(g)) return detail::stride_two_backward_data(g, batch, dy, w, dx, use);
        constexpr std::size_t columns = detail::tile_columns<T>;
        const std::size_t channels = g.group_channels();
        const detail::output_pitch pitch{g.stride_columns * g.channels, g.stride_rows * g.columns * g.channels,
                                         g.in_size()};
        detail::for_phases(g, [&](std::size_t r, std::size_t c, const detail::phase& down,
                                  const detail::phase& across) {
            const detail::sliding s = detail::phase_sliding(g, down, across);
            T* const panels = use.scratch.data();
            for (std::size_t group = 0; group < g.groups; ++group) {
                const T* const from = w + group * s.depth;
                parallel::for_blocks(use.team, channels, columns, [&](parallel::block mine) {
                    T* to = panels + mine.first * s.links();
                    for (std::size_t i = s.taps_rows; i-- > 0;)
                        for (std::size_t j = s.taps_columns; j-- > 0; to += s.depth * columns) {
                            const std::size_t tap =
                                (down.offset + i * down.step) * g.kernel_columns + across.offset + j * across.step;
                            detail::pack_transposed<columns>(s.depth, mine.size(),
                                                             from + (tap * channels + mine.first) * g.filters,
                                                             g.filters, to, s.links() * columns);
                        }
                });
                detail::correlate<Ways, T>({s, channels, dy + group * s.depth, panels, nullptr,
                                            dx + (r * g.columns + c) * g.channels + group * channels, pitch},
                                           batch, use.team, panels + s.links() * detail::round_up(channels, columns));
            }
        });
    }
}

/// Elements of scratch of convolution_backward_weights for at most `batch` samples.
template <class T, narrow Narrow = narrow::automatic>
[[nodiscard, gnu::noinline]] constexpr std::size_t convolution_backward_weights_scratch(const convolution& g,
                                                                                        std::size_t batch,
                                                                                        parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    if constexpr (Narrow != narrow::no) {
        if (Narrow == narrow::yes || detail::prefers_few_filters_weights<T>(g))
            return detail::few_filters_weights<T>{{g}}.scratch(batch, static_cast<std::size_t>(team.threads));
    }
    if constexpr (Narrow != narrow::yes) {
        return static_cast<std::size_t>(team.threads) *
               detail::outer_blocks<T>::share(detail::forward_sliding(g), batch, g.group_filters());
    }
    return 0;
}

/// dw = the gradient with respect to the weights, dbias (filters entries, or null) that with respect to the bias. Each
/// element is one chain from zero over samples, output rows and output columns in ascending order; few filters have a
/// chain for each element of a vector, see few_filters_backward_weights.hpp, unless one register tile holds all
/// weights. Threads split dw, so small kernels use few of them. Cost: batch x flops(), one packed copy of dy,
/// kernel_rows x kernel_columns / stride of x.
template <class T, narrow Narrow = narrow::automatic, detail::direct_ways Ways = detail::direct_ways{}>
void convolution_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                                  resources<T> use) noexcept {
    if (batch == 0 || detail::is_empty(g)) {
        std::fill_n(dw, g.weight_count(), T{0});
        if (dbias) std::fill_n(dbias, g.filters, T{0});
        return;
    }
    if constexpr (Narrow != narrow::no) {
        if (Narrow == narrow::yes || detail::prefers_few_filters_weights<T>(g))
            return detail::few_filters_backward_weights(g, batch, x, dy, dw, dbias, use);
    }
    if constexpr (Narrow != narrow::yes) {
        const detail::sliding s = detail::forward_sliding(g);
        const std::size_t filters = g.group_filters();
        for (std::size_t group = 0; group < g.groups; ++group) {
            const std::size_t first = group * filters;
            detail::outer_products<Ways>(s, batch, filters, g.filters, x + group * s.depth, dy + first, dw + first,
                                         dbias ? dbias + first : nullptr, use);
        }
    }
}

LOCKSTEP_TEMPLATE(convolution_forward<float, narrow::automatic>);
LOCKSTEP_TEMPLATE(convolution_forward<float, narrow::no>);
LOCKSTEP_TEMPLATE(convolution_forward<float, narrow::yes>);
LOCKSTEP_TEMPLATE(convolution_backward_data<float, narrow::automatic>);
LOCKSTEP_TEMPLATE(convolution_backward_data<float, narrow::no>);
LOCKSTEP_TEMPLATE(convolution_backward_data<float, narrow::yes>);
LOCKSTEP_TEMPLATE(convolution_backward_weights<float, narrow::automatic>);
LOCKSTEP_TEMPLATE(convolution_backward_weights<float, narrow::no>);
LOCKSTEP_TEMPLATE(convolution_backward_weights<float, narrow::yes>);

}  // namespace lockstep::kernels
