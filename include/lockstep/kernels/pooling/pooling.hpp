// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Max and mean pooling with their backward passes, vectors along the channels. Threads split samples and rows; an input
// gradient adds its windows in ascending order. Images are walked in the order of memory: a window row after the other,
// with what they have in common in cache.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/pooling/input_windows.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

namespace detail {

/// One dimension of a window: kernel positions first..last-1 of window `at` lie inside 0..size-1.
struct pool_span {
    std::size_t first;
    std::size_t last;
    std::size_t origin;  ///< position of kernel index 0, may wrap below 0: origin + index is right for indices in range
    constexpr pool_span(std::size_t at, std::size_t stride, std::size_t padding, std::size_t kernel,
                        std::size_t size) noexcept
        : first{at * stride < padding ? std::min(kernel, padding - at * stride) : 0},
          last{std::min(kernel, size + padding > at * stride ? size + padding - at * stride : 0)},
          origin{at * stride - padding} {
        last = std::max(first, last);
    }
    [[nodiscard]] constexpr std::size_t size() const noexcept { return last - first; }
};
[[nodiscard]] constexpr pool_span pool_rows(const pooling& g, std::size_t at) noexcept {
    return {at, g.stride_rows, g.pad_top, g.kernel_rows, g.rows};
}
[[nodiscard]] constexpr pool_span pool_columns(const pooling& g, std::size_t at) noexcept {
    return {at, g.stride_columns, g.pad_left, g.kernel_columns, g.columns};
}

/// Windows that lie inside of the image.
[[nodiscard]] constexpr parallel::block whole_windows(std::size_t stride, std::size_t padding, std::size_t kernel,
                                                      std::size_t size) noexcept {
    const std::size_t first = (padding + stride - 1) / stride;
    const std::size_t after = size + padding < kernel ? 0 : (size + padding - kernel) / stride + 1;
    return {first, std::max(first, after)};
}
[[nodiscard]] constexpr parallel::block whole_rows(const pooling& g) noexcept {
    return whole_windows(g.stride_rows, g.pad_top, g.kernel_rows, g.rows);
}
[[nodiscard]] constexpr parallel::block whole_columns(const pooling& g) noexcept {
    return whole_windows(g.stride_columns, g.pad_left, g.kernel_columns, g.columns);
}
/// What each input of a window counts for the mean.
template <class T>
[[nodiscard]] constexpr T pool_share(const pooling& g, std::size_t row, std::size_t column) noexcept {
    return T{1} / static_cast<T>(pool_rows(g, row).size() * pool_columns(g, column).size());
}

/// What of a window lies inside of its image.
struct pool_window {
    std::size_t output;  ///< first channel of the output
    std::size_t input;   ///< first channel of the first input
    std::size_t ahead;   ///< what the next row of windows sees first in place of this one
    pool_span rows;
    pool_span columns;
    bool alone;  ///< or the first of `joined_pixels` neighbours with the same rows and columns
    [[nodiscard]] constexpr std::size_t size() const noexcept { return rows.size() * columns.size(); }

    /// Calls f(distance from the first input, number of the position).
    template <class F>
    LOCKSTEP_FLATTEN void each(const pooling& g, F&& f) const noexcept {
        for (std::size_t kr = rows.first; kr < rows.last; ++kr) {
            std::size_t at = (kr - rows.first) * g.columns * g.channels;
            for (std::size_t kc = columns.first; kc < columns.last; ++kc, at += g.channels)
                f(at, kr * g.kernel_columns + kc);
        }
    }
};

/// Output pixels that go through registers together where they have few channels: whatever a vector holds after the
/// channels of a pixel belongs to the next one, which is written later.
inline constexpr std::size_t joined_pixels = 4;

/// Whether pixels may go together that end `room` numbers after the first one.
template <class T>
[[nodiscard]] constexpr bool join_pixels(const pooling& g, std::size_t step, std::size_t room) noexcept {
    return g.channels < joined_pixels * simd::width<T> &&
           (joined_pixels - 1) * step + std::max(g.channels, simd::width<T>) <= room;
}

/// Calls f(part, channel, count, distance of inputs, distance of outputs) for the vectors of one window, or of one
/// vector of neighbouring windows.
template <class T, class F>
LOCKSTEP_FLATTEN inline void for_vectors(const pooling& g, bool alone, F&& f) noexcept {
    constexpr std::size_t width = simd::width<T>;
    if (alone)
        return for_channels<T>(g.channels, [&](const auto part, std::size_t c, auto count)
                                               LOCKSTEP_FLATTEN { f(part, c, count, width, width); });
    // The last vector overlaps the one before it.
    for (std::size_t c = 0; c < g.channels; c += width)
        f(channel_vector<T>{}, g.channels < width ? 0 : std::min(c, g.channels - width),
          std::integral_constant<std::size_t, joined_pixels>{}, g.stride_columns * g.channels, g.channels);
}

/// Calls f(window) for each output pixel, or for several at once. `streamed`: f stores past the caches.
template <class T, class F>
void for_outputs(const pooling& g, std::size_t batch, parallel::team team, bool streamed, const F& f) noexcept {
    detail::for_blocks(team, batch * g.out_rows(), 1, [=](parallel::block mine) LOCKSTEP_FLATTEN {
        const std::size_t high = g.out_rows();
        const std::size_t wide = g.out_columns();
        for (std::size_t at = mine.first; at < mine.last; ++at) {
            const pool_span rows = pool_rows(g, at % high);
            const std::size_t from = (at / high * g.rows + rows.origin + rows.first) * g.columns;
            for (std::size_t column = 0; column < wide;) {
                const pool_span columns = pool_columns(g, column);
                const std::size_t output = (at * wide + column) * g.channels;
                const std::size_t input = (from + columns.origin + columns.first) * g.channels;
                const std::size_t ahead =
                    (from + rows.size() * g.columns + column * g.stride_rows * g.stride_columns) * g.channels;
                // Neighbours must lie inside of the image, what they write in the part of this thread, and what they
                // read in the images.
                const bool join = column + joined_pixels <= wide && columns.size() == g.kernel_columns &&
                                  pool_columns(g, column + joined_pixels - 1).size() == g.kernel_columns &&
                                  rows.size() > 0 &&
                                  join_pixels<T>(g, g.channels, mine.last * wide * g.channels - output) &&
                                  join_pixels<T>(g, g.stride_columns * g.channels,
                                                 batch * g.in_size() - input -
                                                     ((rows.size() - 1) * g.columns + columns.size() - 1) * g.channels);
                f(pool_window{output, input, ahead, rows, columns, !join});
                column += join ? joined_pixels : 1;
            }
        }
        if (streamed) simd::stream_end();
    });
}

/// Whether forward passes ask for their next rows also where windows go one by one: without, they take up to three
/// times as long on AMD's processors, but Intel's of today, known by an extension that only those have, fetch the rows
/// by themselves and take up to 1.6 times as long if asked.
#if defined(__AMX_TILE__)
inline constexpr bool asks_ahead = false;
#else
inline constexpr bool asks_ahead = true;
#endif

/// Asks for as many lines as there are new inputs for one vector of outputs, in the order of memory.
template <class T>
LOCKSTEP_FLATTEN inline void fetch_ahead(const pooling& g, bool alone, const T* from, std::size_t channel) noexcept {
    if (alone && !asks_ahead) return;
    const std::size_t inputs = g.stride_rows * g.stride_columns;
    for (std::size_t i = 0; i < inputs * simd::width<T>; i += simd::alignment / sizeof(T))
        __builtin_prefetch(from + channel * inputs + i, 0, 3);
}

/// Whether each input has exactly one window.
[[nodiscard]] constexpr bool has_tiles(const pooling& g) noexcept {
    const auto tiled = [](std::size_t size, std::size_t kernel, std::size_t stride, std::size_t windows,
                          std::size_t before) { return before == 0 && kernel == stride && windows * stride == size; };
    return tiled(g.rows, g.kernel_rows, g.stride_rows, g.out_rows(), g.pad_top) &&
           tiled(g.columns, g.kernel_columns, g.stride_columns, g.out_columns(), g.pad_left);
}
/// The sum of an input starts from 0, or from -0 where it has one term, which then keeps its sign.
template <class T>
[[nodiscard]] constexpr T gradient_start(const pooling& g) noexcept {
    return has_tiles(g) ? -T{0} : T{0};
}
/// Whether a gradient goes window by window, several through registers together where pixels have few channels: where
/// each input has one window, and whole pixels are not stored past the caches.
template <class T>
[[nodiscard]] inline bool goes_by_windows(const pooling& g, std::size_t batch, const T* dx) noexcept {
    return has_tiles(g) &&
           (g.channels < joined_pixels * simd::width<T> || !simd::streams(dx, batch * g.in_size(), g.channels));
}

/// The walks of a gradient that are compiled: all, or those that known sizes ask for.
struct gradient_walks {
    bool by_windows = true;
    bool by_inputs = true;
};

/// A row of positions of one window.
struct pool_taps {
    std::size_t output;  ///< first channel of the output
    std::size_t input;   ///< first channel of the first input
    std::size_t number;  ///< of the first position in the window
    std::size_t room;    ///< elements from the first input to the end of its row
    bool alone;          ///< or the first of `joined_pixels` windows
};

/// Calls f(taps) for each row of dx and the windows that lie in it side by side.
template <class T, class F>
void for_taps(const pooling& g, std::size_t batch, T* dx, parallel::team team, const F& f) noexcept {
    detail::for_blocks(team, batch * g.rows, 1, [=](parallel::block mine) LOCKSTEP_FLATTEN {
        const std::size_t wide = g.out_columns();
        const std::size_t step = g.kernel_columns * g.channels;
        for (std::size_t row = mine.first; row < mine.last; ++row) {
            for (std::size_t column = 0; column < wide;) {
                const std::size_t output = (row / g.kernel_rows * wide + column) * g.channels;
                const std::size_t input = row * g.columns * g.channels + column * step;
                const std::size_t room = (wide - column) * step;
                // What they read must lie in the outputs, and what they write in the row.
                const bool join = column + joined_pixels <= wide &&
                                  join_pixels<T>(g, g.channels, batch * g.out_size() - output) &&
                                  join_pixels<T>(g, step, room - (step - g.channels));
                // The place of what comes soon.
                for (std::size_t i = 0; i < (join ? joined_pixels : 1) * step; i += simd::alignment / sizeof(T))
                    __builtin_prefetch(dx + input + 4096 / sizeof(T) + i, 1, 3);
                f(pool_taps{output, input, row % g.kernel_rows * g.kernel_columns, room, !join});
                column += join ? joined_pixels : 1;
            }
        }
    });
}

}  // namespace detail

/// y = maximum of each window; the first of equals wins, and a NaN wins over all numbers. `which` receives the winner's
/// index in its window (kernel row x kernel_columns + kernel column, at most 255; 255 with no candidate, where y = 0)
/// or is null. x and y are disjoint.
template <class T>
void max_pool_forward(const pooling& g, std::size_t batch, const T* x, T* y, std::uint8_t* which,
                      parallel::team team) noexcept {
    using vector = simd::batch<T>;
    using detail::unroll;
    const bool streamed = simd::streams(y, batch * g.out_size(), g.channels);
    detail::for_outputs<T>(g, batch, team, streamed, [=](const detail::pool_window& window) LOCKSTEP_FLATTEN {
        const bool empty = window.size() == 0;
        const std::size_t first = window.rows.first * g.kernel_columns + window.columns.first;
        detail::for_vectors<T>(g, window.alone,
                               [&](const auto part, std::size_t c, auto count, std::size_t in, std::size_t out)
                                   LOCKSTEP_FLATTEN {
                                       unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                           detail::fetch_ahead(g, window.alone, x + window.ahead, c + v * out);
                                       });
                                       vector best[count];
                                       vector index[count];
                                       unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                           best[v] = empty ? vector(T{0}) : part.load(x + window.input + c + v * in);
                                           index[v] = vector(empty ? T{255} : static_cast<T>(first));
                                       });
                                       window.each(g, [&](std::size_t at, std::size_t tap) LOCKSTEP_FLATTEN {
                                           const vector number(static_cast<T>(tap));
                                           const T* from = x + window.input + c + at;
                                           unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                               const vector value = part.load(from + v * in);
                                               // A NaN that arrives is not "at most", and a NaN that is already there
                                               // stays. The first one is compared with itself and stays.
                                               const auto stays = value <= best[v] || isnan(best[v]);
                                               best[v] = select(stays, best[v], value);
                                               index[v] = select(stays, index[v], number);
                                           });
                                       });
                                       unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                           detail::put(part, streamed, y + window.output + c + v * out, best[v]);
                                           if (which) part.store(which + window.output + c + v * out, index[v]);
                                       });
                                   });
    });
}

/// dx = sum of dy over the windows that x won, in ascending order of the windows.
template <class T, detail::gradient_walks Walks = detail::gradient_walks{}>
void max_pool_backward(const pooling& g, std::size_t batch, const T* dy, const std::uint8_t* which, T* dx,
                       parallel::team team) noexcept {
    using vector = simd::batch<T>;
    using detail::unroll;
    if constexpr (Walks.by_windows)
        if (!Walks.by_inputs || detail::goes_by_windows(g, batch, dx))
            return detail::for_taps<T>(g, batch, dx, team, [=](const detail::pool_taps& taps) LOCKSTEP_FLATTEN {
                detail::for_vectors<T>(
                    g, taps.alone,
                    [&](const auto part, std::size_t c, auto count, std::size_t in, std::size_t out) LOCKSTEP_FLATTEN {
                        vector gradient[count];
                        vector winner[count];
                        unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                            gradient[v] = part.load(dy + taps.output + c + v * out);
                            winner[v] = part.load(which + taps.output + c + v * out);
                        });
                        // What a vector writes after its channels, the next position writes again: they go in the
                        // order of memory.
                        unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                            T* to = dx + taps.input + c + v * in;
                            vector number(static_cast<T>(taps.number));
                            std::size_t room = taps.room - v * in;
                            for (std::size_t tap = 0; tap < g.kernel_columns;
                                 ++tap, to += g.channels, room -= g.channels) {
                                part.store_over(to, select(winner[v] == number, gradient[v], vector(T{0})), room);
                                number = number + vector(T{1});
                            }
                        });
                    });
            });
    if constexpr (Walks.by_inputs) {
        const auto position = [](std::size_t number, std::size_t, std::size_t)
                                  LOCKSTEP_FLATTEN { return static_cast<std::uint8_t>(number); };
        detail::sum_windows<T>(g, batch, detail::gradient_start<T>(g), dx, team, position,
                               [=](const auto part, std::uint8_t number, std::size_t output) LOCKSTEP_FLATTEN {
                                   return select(part.equal(which + output, number), part.load(dy + output),
                                                 vector(T{0}));
                               });
    }
}

/// y = mean of what each window has inside of x, added in ascending order; 0 where it has nothing.
template <class T>
void mean_pool_forward(const pooling& g, std::size_t batch, const T* x, T* y, parallel::team team) noexcept {
    using vector = simd::batch<T>;
    using detail::unroll;
    const bool streamed = simd::streams(y, batch * g.out_size(), g.channels);
    detail::for_outputs<T>(g, batch, team, streamed, [=](const detail::pool_window& window) LOCKSTEP_FLATTEN {
        const vector share(window.size() == 0 ? T{0} : T{1} / static_cast<T>(window.size()));
        detail::for_vectors<T>(
            g, window.alone,
            [&](const auto part, std::size_t c, auto count, std::size_t in, std::size_t out) LOCKSTEP_FLATTEN {
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    detail::fetch_ahead(g, window.alone, x + window.ahead, c + v * out);
                });
                vector sum[count];
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN { sum[v] = vector(T{0}); });
                window.each(g, [&](std::size_t at, std::size_t) LOCKSTEP_FLATTEN {
                    const T* from = x + window.input + c + at;
                    unroll<count>([&](auto v) LOCKSTEP_FLATTEN { sum[v] = sum[v] + part.load(from + v * in); });
                });
                unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                    detail::put(part, streamed, y + window.output + c + v * out, sum[v] * share);
                });
            });
    });
}

/// dx = sum of dy / (size of the window inside of x) over the windows that see x, in ascending order.
template <class T, detail::gradient_walks Walks = detail::gradient_walks{}>
void mean_pool_backward(const pooling& g, std::size_t batch, const T* dy, T* dx, parallel::team team) noexcept {
    using vector = simd::batch<T>;
    using detail::unroll;
    if constexpr (Walks.by_windows)
        if (!Walks.by_inputs || detail::goes_by_windows(g, batch, dx))
            return detail::for_taps<T>(g, batch, dx, team, [=](const detail::pool_taps& taps) LOCKSTEP_FLATTEN {
                const vector share(T{1} / static_cast<T>(g.kernel_rows * g.kernel_columns));
                detail::for_vectors<T>(g, taps.alone,
                                       [&](const auto part, std::size_t c, auto count, std::size_t in, std::size_t out)
                                           LOCKSTEP_FLATTEN {
                                               vector term[count];
                                               unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                                   term[v] = share * part.load(dy + taps.output + c + v * out);
                                               });
                                               unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                                                   T* to = dx + taps.input + c + v * in;
                                                   std::size_t room = taps.room - v * in;
                                                   for (std::size_t tap = 0; tap < g.kernel_columns;
                                                        ++tap, to += g.channels, room -= g.channels)
                                                       part.store_over(to, term[v], room);
                                               });
                                           });
            });
    if constexpr (Walks.by_inputs) {
        const auto share = [=, whole = T{1} / static_cast<T>(g.kernel_rows * g.kernel_columns),
                            rows = detail::whole_rows(g), columns = detail::whole_columns(g)](
                               std::size_t, std::size_t row, std::size_t column) LOCKSTEP_FLATTEN {
            const bool inside =
                rows.first <= row && row < rows.last && columns.first <= column && column < columns.last;
            return inside ? whole : detail::pool_share<T>(g, row, column);
        };
        detail::sum_windows<T>(g, batch, detail::gradient_start<T>(g), dx, team, share,
                               [=](const auto part, T one, std::size_t output)
                                   LOCKSTEP_FLATTEN { return vector(one) * part.load(dy + output); });
    }
}

/// For sizes that the compiler knows: the walks that a gradient takes.
template <class T>
[[nodiscard]] constexpr detail::gradient_walks known_walks(const pooling& g) noexcept {
    const bool tiles = detail::has_tiles(g);
    return {tiles, !tiles || g.channels >= detail::joined_pixels * simd::width<T>};
}

LOCKSTEP_TEMPLATE(max_pool_forward<float>);
LOCKSTEP_TEMPLATE(max_pool_backward<float>);
LOCKSTEP_TEMPLATE(mean_pool_forward<float>);
LOCKSTEP_TEMPLATE(mean_pool_backward<float>);

}  // namespace lockstep::kernels
