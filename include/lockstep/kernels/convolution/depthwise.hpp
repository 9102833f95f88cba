// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Depthwise convolution, one filter for each channel (convolution::is_depthwise), and its two backward passes: vectors
// along the channels.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/channel_copy.hpp"
#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

namespace detail {

/// Kernel positions that lie inside of an image of `size`, where the first one is at `origin`.
[[nodiscard]] constexpr parallel::block taps_inside(std::ptrdiff_t origin, std::size_t taps, std::size_t dilation,
                                                    std::size_t size) noexcept {
    const auto step = static_cast<std::ptrdiff_t>(dilation);
    const auto quotient = [step](std::ptrdiff_t n) {
        return n <= 0 ? 0 : static_cast<std::size_t>((n + step - 1) / step);
    };
    const std::size_t last = std::min(taps, quotient(static_cast<std::ptrdiff_t>(size) - origin));
    return {std::min(last, quotient(-origin)), last};
}

/// Each channel with a window of its own; s.pixel channels lie side by side. Kernel position (i, j) has its weights at
/// w + i w_row + j w_column.
template <class T>
struct depthwise_correlation {
    sliding s;
    const T* x = nullptr;
    const T* w = nullptr;
    std::ptrdiff_t w_row = 0;
    std::ptrdiff_t w_column = 0;
    const T* bias = nullptr;
    T* y = nullptr;
    output_pitch pitch;

    static constexpr std::size_t tile = 6;

    /// `Pixels` neighbouring outputs that see the same kernel positions: the first one's window begins at `origin`,
    /// among all of x.
    template <std::size_t Pixels>
    void outputs(std::ptrdiff_t origin, parallel::block rows, parallel::block columns, T* to) const noexcept {
        // By value: to the compiler a vector that is stored may lie over what *this holds.
        const auto step = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
        const std::ptrdiff_t next = step(s.stride_columns * s.pixel), across = step(s.dilation_columns * s.pixel),
                             down = step(s.dilation_rows * s.columns * s.pixel), w_down = w_row, w_across = w_column,
                             y_next = step(pitch.column);
        const std::ptrdiff_t first = origin + step(rows.first) * down + step(columns.first) * across;
        const T* const images = x;
        const T* const weights = w + (step(rows.first) * w_down + step(columns.first) * w_across);
        const T* const start = bias;
        const std::size_t high = rows.size(), wide = columns.size();
        for_channels<T>(s.pixel, [=](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
            using vector = simd::batch<T>;
            constexpr std::size_t width = simd::width<T>;
            constexpr std::size_t at_once = std::min(Pixels, count == 1 || simd::registers >= 32 ? tile : tile / 2);
            for (std::size_t pixel = 0; pixel < Pixels; pixel += at_once) {
                vector sum[at_once][count];
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    const vector begin = start ? part.load(start + c + v * width) : vector(T{0});
                    unroll<at_once>([&](auto p) LOCKSTEP_FLATTEN { sum[p][v] = begin; });
                });
                std::ptrdiff_t row = first + step(pixel) * next + step(c);
                const T* weight_row = weights + c;
                for (std::size_t i = high; i > 0; --i, row += down, weight_row += w_down) {
                    std::ptrdiff_t at = row;
                    const T* weight = weight_row;
                    for (std::size_t j = wide; j > 0; --j, at += across, weight += w_across) {
                        const T* const from = images + at;
                        unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                            vector factor = part.load(weight + v * width);
                            simd::pin(factor);
                            unroll<at_once>([&](auto p) LOCKSTEP_FLATTEN {
                                sum[p][v] = simd::fma(part.load(from + step(p) * next + v * width), factor, sum[p][v]);
                            });
                        });
                    }
                }
                unroll<at_once>([&](auto p) LOCKSTEP_FLATTEN {
                    unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                        part.store(to + (step(pixel + p) * y_next + step(c + v * width)), sum[p][v]);
                    });
                });
            }
        });
    }

    /// The same for all of three neighbouring kernel columns and a stride of 1: what they see together is loaded once.
    template <std::size_t Pixels>
    void outputs_of_three(std::ptrdiff_t origin, parallel::block rows, T* to) const noexcept {
        const auto step = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
        const std::ptrdiff_t next = step(s.pixel), down = step(s.dilation_rows * s.columns * s.pixel), w_down = w_row,
                             w_across = w_column, y_next = step(pitch.column);
        const std::ptrdiff_t first = origin + step(rows.first) * down;
        const T* const images = x;
        const T* const weights = w + step(rows.first) * w_down;
        const T* const start = bias;
        const std::size_t high = rows.size();
        for_channels<T>(s.pixel, [=](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
            using vector = simd::batch<T>;
            constexpr std::size_t width = simd::width<T>;
            // A cache line at a time: where pixels are a multiple of 4 KB apart, it would be gone before its other half
            // is wanted.
            constexpr std::size_t vectors = std::min<std::size_t>(count, simd::alignment / sizeof(T) / width);
            for (std::size_t channel = c; channel < c + count * width; channel += vectors * width) {
                vector sum[Pixels][vectors];
                unroll<vectors>([&](auto v) LOCKSTEP_FLATTEN {
                    const vector begin = start ? part.load(start + channel + v * width) : vector(T{0});
                    unroll<Pixels>([&](auto p) LOCKSTEP_FLATTEN { sum[p][v] = begin; });
                });
                const T* weight = weights + channel;
                std::ptrdiff_t at = first + step(channel);
                for (std::size_t i = high; i > 0; --i, at += down, weight += w_down) {
                    vector factor[3][vectors];
                    unroll<3>([&](auto t) LOCKSTEP_FLATTEN {
                        unroll<vectors>([&](auto v) LOCKSTEP_FLATTEN {
                            factor[t][v] = part.load(weight + step(t) * w_across + v * width);
                            simd::pin(factor[t][v]);
                        });
                    });
                    unroll<Pixels + 2>([&](auto q) LOCKSTEP_FLATTEN {
                        unroll<vectors>([&](auto v) LOCKSTEP_FLATTEN {
                            vector seen = part.load(images + at + step(q) * next + v * width);
                            simd::pin(seen);
                            unroll<3>([&](auto t) LOCKSTEP_FLATTEN {
                                if constexpr (q >= t && q < Pixels + t)
                                    sum[q - t][v] = simd::fma(seen, factor[t][v], sum[q - t][v]);
                            });
                        });
                    });
                }
                unroll<Pixels>([&](auto p) LOCKSTEP_FLATTEN {
                    unroll<vectors>([&](auto v) LOCKSTEP_FLATTEN {
                        part.store(to + (step(p) * y_next + step(channel + v * width)), sum[p][v]);
                    });
                });
            }
        });
    }

    /// Rows of outputs of one sample, from copies of a few channels where that pays. The chains are the same.
    void rows(std::size_t sample, parallel::block which) const noexcept {
        const std::size_t taps = s.taps_rows * s.taps_columns;
        const parallel::block whole = whole_windows();
        const auto size = [&](std::size_t channels, std::size_t high) {
            return channels * (taps + s.seen_rows(high) * s.columns);
        };
        const std::size_t channels = channel_copy<T>::channels(s, which.size(), size);
        if (channels == 0) {
            for (std::size_t r = which.first; r < which.last; ++r) row(sample, r, whole);
            return;
        }
        const std::size_t high = channel_copy<T>::rows(which.size(), channels, size);
        channel_copy<T> room;
        T* const weights = room.numbers;
        T* const images = weights + taps * channels;
        for (std::size_t first = which.first; first < which.last; first += high) {
            const parallel::block outputs{first, std::min(first + high, which.last)};
            const parallel::block seen = seen_by(s, outputs);
            depthwise_correlation part{over_copy(s, seen, channels),
                                       images,
                                       weights,
                                       static_cast<std::ptrdiff_t>(s.taps_columns * channels),
                                       static_cast<std::ptrdiff_t>(channels),
                                       bias,
                                       y + sample * pitch.sample,
                                       pitch};
            for (std::size_t c = 0; c < s.pixel; c += channels, part.y += channels) {
                for (std::size_t tap = 0; tap < taps; ++tap)
                    room.copy(w + static_cast<std::ptrdiff_t>(tap / s.taps_columns) * w_row +
                                  static_cast<std::ptrdiff_t>(tap % s.taps_columns) * w_column +
                                  static_cast<std::ptrdiff_t>(c),
                              1, 0, channels, weights + tap * channels);
                room.copy(x + (sample * s.rows + seen.first) * s.columns * s.pixel + c, seen.size() * s.columns,
                          s.pixel, channels, images);
                if (bias) part.bias = bias + c;
                for (std::size_t r = outputs.first; r < outputs.last; ++r) part.row(0, r, whole);
            }
        }
    }

    /// The columns of outputs whose windows lie inside of the image.
    [[nodiscard]] constexpr parallel::block whole_windows() const noexcept {
        parallel::block whole = inside(s.out_columns, s.stride_columns, s.origin_columns, 0, s.columns);
        if (s.taps_columns > 0)
            whole.last = inside(s.out_columns, s.stride_columns, s.origin_columns,
                                (s.taps_columns - 1) * s.dilation_columns, s.columns)
                             .last;
        whole.last = std::max(whole.first, whole.last);
        return whole;
    }

    /// One row of outputs.
    [[gnu::noinline]] void row(std::size_t sample, std::size_t r, parallel::block whole) const noexcept {
        const std::ptrdiff_t top = static_cast<std::ptrdiff_t>(r * s.stride_rows) + s.origin_rows;
        const parallel::block rows = taps_inside(top, s.taps_rows, s.dilation_rows, s.rows);
        const std::ptrdiff_t begin =
            (static_cast<std::ptrdiff_t>(sample * s.rows) + top) * static_cast<std::ptrdiff_t>(s.columns * s.pixel);
        const auto left = [&](std::size_t column) {
            return static_cast<std::ptrdiff_t>(column * s.stride_columns) + s.origin_columns;
        };
        const auto place = [&](std::size_t column) {
            return begin + left(column) * static_cast<std::ptrdiff_t>(s.pixel);
        };
        const auto target = [&](std::size_t column) {
            return y + sample * pitch.sample + r * pitch.row + column * pitch.column;
        };
        const auto alone = [&](std::size_t first, std::size_t last) {
            for (std::size_t column = first; column < last; ++column)
                outputs<1>(place(column), rows,
                           taps_inside(left(column), s.taps_columns, s.dilation_columns, s.columns), target(column));
        };
        // Outputs whose windows lie inside, in tiles of which the last two may overlap.
        alone(0, whole.first);
        const auto tiles = [&](auto pixels, const auto& f) {
            for (std::size_t column = whole.first; column < whole.last; column += pixels)
                f(std::min(column, whole.last - pixels));
        };
        const std::integral_constant<std::size_t, 3> few;
        const std::integral_constant<std::size_t, 4> more;
        const std::integral_constant<std::size_t, tile> most;
        const bool three = s.taps_columns == 3 && s.dilation_columns == 1 && s.stride_columns == 1;
        if (whole.size() < few)
            alone(whole.first, whole.last);
        else if (three && (whole.size() == more || whole.size() > most))
            tiles(more, [&](std::size_t column) { outputs_of_three<more>(place(column), rows, target(column)); });
        else if (three)
            tiles(few, [&](std::size_t column) { outputs_of_three<few>(place(column), rows, target(column)); });
        else if (whole.size() < most)
            tiles(few, [&](std::size_t column) {
                outputs<few>(place(column), rows, {0, s.taps_columns}, target(column));
            });
        else
            tiles(most, [&](std::size_t column) {
                outputs<most>(place(column), rows, {0, s.taps_columns}, target(column));
            });
        alone(whole.last, s.out_columns);
    }
};

/// Outputs of one row of dy times what `Taps` neighbouring positions of a kernel row see, added to their weights'
/// gradients.
template <std::size_t Taps, class T>
void add_depthwise_row(const sliding& s, std::size_t channels, std::size_t tap, const T* x, const T* dy,
                       T* dw) noexcept {
    parallel::block each[Taps];
    parallel::block common{0, s.out_columns};
    for (std::size_t t = 0; t < Taps; ++t) {
        each[t] = inside(s.out_columns, s.stride_columns, s.origin_columns, (tap + t) * s.dilation_columns, s.columns);
        common = {std::max(common.first, each[t].first), std::min(common.last, each[t].last)};
    }
    if (common.first >= common.last) common = {s.out_columns, s.out_columns};
    const auto position = [&](std::size_t t, std::size_t column) {
        return (static_cast<std::ptrdiff_t>(column * s.stride_columns + (tap + t) * s.dilation_columns) +
                s.origin_columns) *
               static_cast<std::ptrdiff_t>(s.pixel);
    };
    for_channels<T>(channels, [&](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
        using vector = simd::batch<T>;
        constexpr std::size_t width = simd::width<T>;
        vector sum[Taps][count];
        unroll<Taps>([&](auto t) LOCKSTEP_FLATTEN {
            unroll<count>([&](auto v)
                              LOCKSTEP_FLATTEN { sum[t][v] = part.load(dw + (tap + t) * s.pixel + c + v * width); });
        });
        const auto alone = [&](auto t, std::size_t first, std::size_t last) LOCKSTEP_FLATTEN {
            for (std::size_t column = first; column < last; ++column)
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    sum[t][v] = simd::fma(part.load(x + position(t, column) + c + v * width),
                                          part.load(dy + column * s.pixel + c + v * width), sum[t][v]);
                });
        };
        unroll<Taps>([&](auto t) LOCKSTEP_FLATTEN { alone(t, each[t].first, std::min(each[t].last, common.first)); });
        const T* from = common.size() > 0 ? x + position(0, common.first) + c : x;
        const T* gradient = dy + common.first * s.pixel + c;
        for (std::size_t column = common.first; column < common.last;
             ++column, from += s.stride_columns * s.pixel, gradient += s.pixel)
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                vector factor = part.load(gradient + v * width);
                simd::pin(factor);
                unroll<Taps>([&](auto t) LOCKSTEP_FLATTEN {
                    sum[t][v] =
                        simd::fma(part.load(from + t * s.dilation_columns * s.pixel + v * width), factor, sum[t][v]);
                });
            });
        unroll<Taps>([&](auto t) LOCKSTEP_FLATTEN { alone(t, std::max(each[t].first, common.last), each[t].last); });
        unroll<Taps>([&](auto t) LOCKSTEP_FLATTEN {
            unroll<count>([&](auto v)
                              LOCKSTEP_FLATTEN { part.store(dw + (tap + t) * s.pixel + c + v * width, sum[t][v]); });
        });
    });
}

}  // namespace detail

/// y = x * w + bias for a depthwise convolution; bias has `channels` entries or is null. Each output is one chain of
/// fused multiply-adds from the bias over the kernel rows and columns that lie inside of the image: the bits of
/// convolution_forward, but for a NaN of a weight that is multiplied with padding. Threads split rows. Cost: batch x
/// flops(), x is read kernel_rows times from the cache; no scratch but the stack's.
template <class T>
void depthwise_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                       parallel::team team) noexcept {
    const auto column = static_cast<std::ptrdiff_t>(g.channels);
    const detail::depthwise_correlation<T> all{detail::forward_sliding(g),
                                               x,
                                               w,
                                               static_cast<std::ptrdiff_t>(g.kernel_columns) * column,
                                               column,
                                               bias,
                                               y,
                                               {g.channels, g.out_columns() * g.channels, g.out_size()}};
    parallel::for_blocks(team, batch * g.out_rows(), 1, [&](parallel::block mine) {
        detail::for_sample_rows(mine, g.out_rows(),
                                [&](std::size_t sample, parallel::block rows) { all.rows(sample, rows); });
    });
}

/// dx = the gradient with respect to x, from dy: one chain from zero over output rows and columns in ascending order.
/// Threads split rows. Cost: batch x flops(); no scratch but the stack's.
template <class T>
void depthwise_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                             parallel::team team) noexcept {
    if (detail::is_empty(g)) {
        std::fill_n(dx, batch * g.in_size(), T{0});
        return;
    }
    const auto phases = [&](std::size_t sample, parallel::block rows) {
        detail::for_phases(g, [&](std::size_t r, std::size_t c, const detail::phase& down,
                                  const detail::phase& across) {
            detail::sliding s = detail::backward_sliding(g, down, across);
            if (s.links() == 0) s.taps_rows = s.taps_columns = 0;
            const std::size_t last = s.links() == 0 ? 0
                                                    : (down.offset + (down.taps - 1) * down.step) * g.kernel_columns +
                                                          across.offset + (across.taps - 1) * across.step;
            const auto step = [&](std::size_t taps) { return -static_cast<std::ptrdiff_t>(taps * g.channels); };
            // Rows r, r + stride, .. of the image.
            const auto below = [&](std::size_t end) {
                return end > r ? (end - r + g.stride_rows - 1) / g.stride_rows : 0;
            };
            detail::depthwise_correlation<T>{
                s,
                dy,
                w + last * g.channels,
                step(down.step * g.kernel_columns),
                step(across.step),
                nullptr,
                dx + (r * g.columns + c) * g.channels,
                {g.stride_columns * g.channels, g.stride_rows * g.columns * g.channels, g.in_size()}}
                .rows(sample, {below(rows.first), below(rows.last)});
        });
    };
    parallel::for_blocks(team, batch * g.rows, 1,
                         [&](parallel::block mine) { detail::for_sample_rows(mine, g.rows, phases); });
}

/// dw = the gradient with respect to the weights, dbias (`channels` entries, or null) that with respect to the bias.
/// Each element is one chain from zero over samples, output rows and output columns in ascending order. Threads split
/// kernel rows and channels. Cost: batch x flops(); no scratch.
template <class T>
void depthwise_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                                parallel::team team) noexcept {
    constexpr std::size_t line = simd::alignment / sizeof(T);
    const detail::sliding s = detail::forward_sliding(g);
    const detail::grid parts = detail::choose_grid(g.kernel_rows, g.channels, 1, line, team);
    const std::size_t kernel_row = g.kernel_columns * g.channels;
    parallel::on_each_thread(team, [&](std::size_t thread) {
        const parallel::block down = parallel::split(g.kernel_rows, parts.down, thread / parts.across);
        const parallel::block across = parallel::split(g.channels, parts.across, thread % parts.across, line);
        if (across.empty()) return;
        const bool adds_bias = dbias && thread / parts.across == 0;
        if (adds_bias) std::fill_n(dbias + across.first, across.size(), T{0});
        for (std::size_t tap = down.first * g.kernel_columns; tap < down.last * g.kernel_columns; ++tap)
            std::fill_n(dw + tap * g.channels + across.first, across.size(), T{0});
        for (std::size_t at = 0; at < batch * s.out_rows; ++at) {
            const T* const gradient = dy + at * s.out_columns * g.channels + across.first;
            const std::ptrdiff_t top = static_cast<std::ptrdiff_t>(at % s.out_rows * s.stride_rows) + s.origin_rows;
            const parallel::block rows = detail::taps_inside(top, s.taps_rows, s.dilation_rows, s.rows);
            for (std::size_t i = std::max(rows.first, down.first); i < std::min(rows.last, down.last); ++i) {
                const auto row = at / s.out_rows * s.rows +
                                 static_cast<std::size_t>(top + static_cast<std::ptrdiff_t>(i * s.dilation_rows));
                for (std::size_t j = 0; j < g.kernel_columns; j += 3)
                    detail::with_height<3>(std::min<std::size_t>(3, g.kernel_columns - j), [&](auto taps) {
                        detail::add_depthwise_row<taps>(s, across.size(), j,
                                                        x + row * s.columns * g.channels + across.first, gradient,
                                                        dw + i * kernel_row + across.first);
                    });
            }
            if (adds_bias)
                detail::continue_column_sums(s.out_columns, across.size(), gradient, g.channels, dbias + across.first);
        }
    });
}

LOCKSTEP_TEMPLATE(depthwise_forward<float>);
LOCKSTEP_TEMPLATE(depthwise_backward_data<float>);
LOCKSTEP_TEMPLATE(depthwise_backward_weights<float>);

}  // namespace lockstep::kernels
