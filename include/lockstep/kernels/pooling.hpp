// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Max and mean pooling with their backward passes. Threads split samples and
// rows; each input gradient gathers from its windows in ascending order.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/geometry.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

namespace detail {

/// Kernel positions first..last-1 of window `at` that lie inside 0..size-1.
struct pool_window {
    std::size_t first;
    std::size_t last;
    std::size_t origin;  ///< position of kernel index 0, may wrap below 0: origin + index is right for indices in range
    constexpr pool_window(std::size_t at, std::size_t stride, std::size_t padding, std::size_t kernel, std::size_t size) noexcept
        : first{at * stride < padding ? std::min(kernel, padding - at * stride) : 0},
          last{std::min(kernel, size + padding > at * stride ? size + padding - at * stride : 0)},
          origin{at * stride - padding} {
        last = std::max(first, last);
    }
};

/// Windows first..last-1 that see position `at`.
struct windows_over {
    std::size_t first;
    std::size_t last;
    constexpr windows_over(std::size_t at, std::size_t stride, std::size_t padding, std::size_t kernel, std::size_t count) noexcept
        : first{at + padding < kernel ? 0 : (at + padding - kernel) / stride + 1}, last{std::min(count, (at + padding) / stride + 1)} {
        last = std::max(first, last);
    }
};

}  // namespace detail

/// y = maximum of each window; the first of equals wins, and a NaN wins over all numbers. `which` receives the winner's index in its window
/// (kernel row x kernel_columns + kernel column, at most 255; 255 with no
/// candidate, where y = 0) or is null. Cost: one pass over the windows.
template <class T>
void max_pool_forward(const pooling& g, std::size_t batch, const T* x, T* y, std::uint8_t* which, parallel::team team) noexcept {
    const std::size_t out_rows = g.out_rows();
    const std::size_t out_columns = g.out_columns();
    parallel::for_blocks(team, batch * out_rows, 1, [&](parallel::block mine) {
        for (std::size_t at = mine.first; at < mine.last; ++at) {
            const detail::pool_window vertical{at % out_rows, g.stride_rows, g.pad_top, g.kernel_rows, g.rows};
            const T* image = x + at / out_rows * g.in_size();
            for (std::size_t column = 0; column < out_columns; ++column) {
                const detail::pool_window horizontal{column, g.stride_columns, g.pad_left, g.kernel_columns, g.columns};
                T* best = y + (at * out_columns + column) * g.channels;
                std::uint8_t* index = which ? which + (at * out_columns + column) * g.channels : nullptr;
                bool started = false;
                for (std::size_t kr = vertical.first; kr < vertical.last; ++kr)
                    for (std::size_t kc = horizontal.first; kc < horizontal.last; ++kc) {
                        const T* from = image + ((vertical.origin + kr) * g.columns + horizontal.origin + kc) * g.channels;
                        const auto number = static_cast<std::uint8_t>(kr * g.kernel_columns + kc);
                        if (!started) {
                            std::copy_n(from, g.channels, best);
                            if (index) std::fill_n(index, g.channels, number);
                            started = true;
                        } else if (index) {
                            for (std::size_t c = 0; c < g.channels; ++c) {
                                // "Not at most" is true for a NaN that arrives; a NaN that is already there stays.
                                const bool wins = !(from[c] <= best[c]) && best[c] == best[c];
                                best[c] = wins ? from[c] : best[c];
                                index[c] = wins ? number : index[c];
                            }
                        } else {
                            for (std::size_t c = 0; c < g.channels; ++c)
                                best[c] = !(from[c] <= best[c]) && best[c] == best[c] ? from[c] : best[c];
                        }
                    }
                if (!started) {
                    std::fill_n(best, g.channels, T{0});
                    if (index) std::fill_n(index, g.channels, std::uint8_t{255});
                }
            }
        }
    });
}

/// dx = sum of dy over the windows that x won, in ascending order of the windows.
template <class T>
void max_pool_backward(const pooling& g, std::size_t batch, const T* dy, const std::uint8_t* which, T* dx, parallel::team team) noexcept {
    const std::size_t out_columns = g.out_columns();
    parallel::for_blocks(team, batch * g.rows, 1, [&](parallel::block mine) {
        for (std::size_t at = mine.first; at < mine.last; ++at) {
            const std::size_t row = at % g.rows;
            const std::size_t image = at / g.rows * g.out_rows();
            const detail::windows_over vertical{row, g.stride_rows, g.pad_top, g.kernel_rows, g.out_rows()};
            for (std::size_t column = 0; column < g.columns; ++column) {
                const detail::windows_over horizontal{column, g.stride_columns, g.pad_left, g.kernel_columns, out_columns};
                T* to = dx + (at * g.columns + column) * g.channels;
                std::fill_n(to, g.channels, T{0});
                for (std::size_t r = vertical.first; r < vertical.last; ++r)
                    for (std::size_t q = horizontal.first; q < horizontal.last; ++q) {
                        const std::size_t kr = row + g.pad_top - r * g.stride_rows;
                        const std::size_t kc = column + g.pad_left - q * g.stride_columns;
                        const auto number = static_cast<std::uint8_t>(kr * g.kernel_columns + kc);
                        const std::size_t from = ((image + r) * out_columns + q) * g.channels;
                        for (std::size_t c = 0; c < g.channels; ++c) to[c] += which[from + c] == number ? dy[from + c] : T{0};
                    }
            }
        }
    });
}

/// y = mean of what each window has inside of x, added in ascending order; 0 where it has nothing.
template <class T>
void mean_pool_forward(const pooling& g, std::size_t batch, const T* x, T* y, parallel::team team) noexcept {
    const std::size_t out_rows = g.out_rows();
    const std::size_t out_columns = g.out_columns();
    parallel::for_blocks(team, batch * out_rows, 1, [&](parallel::block mine) {
        for (std::size_t at = mine.first; at < mine.last; ++at) {
            const detail::pool_window vertical{at % out_rows, g.stride_rows, g.pad_top, g.kernel_rows, g.rows};
            const T* image = x + at / out_rows * g.in_size();
            for (std::size_t column = 0; column < out_columns; ++column) {
                const detail::pool_window horizontal{column, g.stride_columns, g.pad_left, g.kernel_columns, g.columns};
                T* sum = y + (at * out_columns + column) * g.channels;
                std::fill_n(sum, g.channels, T{0});
                for (std::size_t kr = vertical.first; kr < vertical.last; ++kr)
                    for (std::size_t kc = horizontal.first; kc < horizontal.last; ++kc) {
                        const T* from = image + ((vertical.origin + kr) * g.columns + horizontal.origin + kc) * g.channels;
                        for (std::size_t c = 0; c < g.channels; ++c) sum[c] += from[c];
                    }
                const std::size_t count = (vertical.last - vertical.first) * (horizontal.last - horizontal.first);
                const T share = count == 0 ? T{0} : T{1} / static_cast<T>(count);
                for (std::size_t c = 0; c < g.channels; ++c) sum[c] *= share;
            }
        }
    });
}

/// dx = sum of dy / (size of the window inside of x) over the windows that see x, in ascending order.
template <class T>
void mean_pool_backward(const pooling& g, std::size_t batch, const T* dy, T* dx, parallel::team team) noexcept {
    const std::size_t out_columns = g.out_columns();
    parallel::for_blocks(team, batch * g.rows, 1, [&](parallel::block mine) {
        for (std::size_t at = mine.first; at < mine.last; ++at) {
            const std::size_t row = at % g.rows;
            const std::size_t image = at / g.rows * g.out_rows();
            const detail::windows_over vertical{row, g.stride_rows, g.pad_top, g.kernel_rows, g.out_rows()};
            for (std::size_t column = 0; column < g.columns; ++column) {
                const detail::windows_over horizontal{column, g.stride_columns, g.pad_left, g.kernel_columns, out_columns};
                T* to = dx + (at * g.columns + column) * g.channels;
                std::fill_n(to, g.channels, T{0});
                for (std::size_t r = vertical.first; r < vertical.last; ++r)
                    for (std::size_t q = horizontal.first; q < horizontal.last; ++q) {
                        const detail::pool_window tall{r, g.stride_rows, g.pad_top, g.kernel_rows, g.rows};
                        const detail::pool_window wide{q, g.stride_columns, g.pad_left, g.kernel_columns, g.columns};
                        const T share = T{1} / static_cast<T>((tall.last - tall.first) * (wide.last - wide.first));
                        const T* from = dy + ((image + r) * out_columns + q) * g.channels;
                        for (std::size_t c = 0; c < g.channels; ++c) to[c] += share * from[c];
                    }
            }
        }
    });
}

}  // namespace lockstep::kernels
