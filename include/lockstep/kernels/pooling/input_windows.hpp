// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The walk of pooling's gradients: each input once, in the order of memory, with the windows that see it.
// Tested by tests/unit/kernels/pooling/pooling.cpp.

#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/elementwise/channels.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

/// Windows first .. last-1 of one dimension see the input at `at`, counted with the padding before it.
struct window_run {
    std::size_t kernel;
    std::size_t stride;
    std::size_t windows;
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t at = 0;

    /// Goes on to an input that is no earlier than the one before.
    constexpr void move(std::size_t to) noexcept {
        at = to;
        while (last < windows && last * stride <= at) ++last;
        while (first < last && first * stride + kernel <= at) ++first;
    }
    /// Of the input in the first window.
    [[nodiscard]] constexpr std::size_t position() const noexcept { return at - first * stride; }
};

/// An input pixel and the windows that see it.
struct input_windows {
    std::size_t input;  ///< first channel of the input
    std::size_t room;   ///< elements from there to the end of its row
    std::size_t image;  ///< row of outputs that the image begins with
    window_run rows;
    window_run columns;

    [[nodiscard]] std::size_t size() const noexcept {
        return (rows.last - rows.first) * (columns.last - columns.first);
    }
    /// Calls f(first channel of the output, number of the position in it, row, column) for the windows in ascending
    /// order.
    template <class F>
    LOCKSTEP_FLATTEN void each(const pooling& g, F&& f) const noexcept {
        std::size_t line = ((image + rows.first) * columns.windows + columns.first) * g.channels;
        std::size_t number = rows.position() * g.kernel_columns + columns.position();
        for (std::size_t r = rows.first; r < rows.last; ++r) {
            std::size_t output = line, position = number;
            for (std::size_t c = columns.first; c < columns.last; ++c) {
                f(output, position, r, c);
                output += g.channels;
                position -= g.stride_columns;
            }
            line += columns.windows * g.channels;
            number -= g.stride_rows * g.kernel_columns;
        }
    }
};

/// dx = start + sum over the windows that see an input, in ascending order, of term(vectors, value of the window,
/// element of the output), where value(number of the position, row, column) is worked out once for each pixel. Each
/// input is written once. Far more than the caches hold goes past them; else the place of what comes soon is asked for.
template <class T, class V, class F>
void sum_windows(const pooling& g, std::size_t batch, T start, T* dx, parallel::team team, const V& value,
                 const F& term) noexcept {
    using vector = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    constexpr std::size_t ahead = 4096 / sizeof(T);
    const bool streamed = simd::streams(dx, batch * g.in_size(), g.channels);
    // `add` adds the terms of all windows to the sums of some channels.
    const auto pixel = [=](const input_windows& windows, const auto& add) LOCKSTEP_FLATTEN {
        T* const to = dx + windows.input;
        for_channels<T>(g.channels, [&](const auto part, std::size_t c, auto count) LOCKSTEP_FLATTEN {
            vector sum[count];
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                if (!streamed) __builtin_prefetch(to + ahead + c + v * width, 1, 3);
                sum[v] = vector(start);
            });
            add([&](const auto& one, std::size_t output) LOCKSTEP_FLATTEN {
                unroll<count>([&](auto v)
                                  LOCKSTEP_FLATTEN { sum[v] = sum[v] + term(part, one, output + c + v * width); });
            });
            unroll<count>([&](auto v) LOCKSTEP_FLATTEN {
                if constexpr (std::is_same_v<std::decay_t<decltype(part)>, channel_vector<T>>)
                    put(part, streamed, to + c + v * width, sum[v]);
                else
                    part.store_over(to + c + v * width, sum[v], windows.room);
            });
        });
    };
    // As many windows as most inputs have: no loop for each few channels.
    const auto few = [=](const input_windows& windows, auto count) LOCKSTEP_FLATTEN {
        std::size_t outputs[count]{};
        decltype(value(0, 0, 0)) values[count]{};
        std::size_t at = 0;
        windows.each(g,
                     [&](std::size_t output, std::size_t number, std::size_t row, std::size_t column) LOCKSTEP_FLATTEN {
                         outputs[at] = output;
                         values[at++] = value(number, row, column);
                     });
        pixel(windows, [&](const auto& add) LOCKSTEP_FLATTEN {
            unroll<count>([&](auto i) LOCKSTEP_FLATTEN { add(values[i], outputs[i]); });
        });
    };
    const auto any = [=](const input_windows& windows) LOCKSTEP_FLATTEN {
        switch (windows.size()) {
            case 1:
                return few(windows, std::integral_constant<std::size_t, 1>{});
            case 2:
                return few(windows, std::integral_constant<std::size_t, 2>{});
            case 4:
                return few(windows, std::integral_constant<std::size_t, 4>{});
            default:
                pixel(windows, [&](const auto& add) LOCKSTEP_FLATTEN {
                    windows.each(g, [&](std::size_t output, std::size_t number, std::size_t row, std::size_t column)
                                        LOCKSTEP_FLATTEN { add(value(number, row, column), output); });
                });
        }
    };
    detail::for_blocks(team, batch * g.rows, 1, [=](parallel::block mine) LOCKSTEP_FLATTEN {
        for (std::size_t row = mine.first; row < mine.last; ++row) {
            input_windows windows{.input = row * g.columns * g.channels,
                                  .room = g.columns * g.channels,
                                  .image = row / g.rows * g.out_rows(),
                                  .rows = {g.kernel_rows, g.stride_rows, g.out_rows()},
                                  .columns = {g.kernel_columns, g.stride_columns, g.out_columns()}};
            windows.rows.move(row % g.rows + g.pad_top);
            for (std::size_t column = 0; column < g.columns; ++column) {
                windows.columns.move(column + g.pad_left);
                any(windows);
                windows.input += g.channels;
                windows.room -= g.channels;
            }
        }
        if (streamed) simd::stream_end();
    });
}

}  // namespace lockstep::kernels::detail
