// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a convolution reads: the part of a batch of images that a block of outputs sees, with its padding, and a walk
// over output pixels.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels::detail {

/// A sliding window over batch x rows x columns x depth. Output (r, c) sees
/// rows r stride_rows + origin_rows + dilation_rows 0 .. taps_rows-1, and
/// columns likewise. An origin below zero is padding.
/// Dilation is a distance between kernel positions, and a group of channels is a window on a slice of them: pixels
/// stay `pixel` apart.
struct sliding {
    std::size_t rows = 1;
    std::size_t columns = 1;
    std::size_t depth = 1;
    std::size_t out_rows = 1;
    std::size_t out_columns = 1;
    std::size_t taps_rows = 1;
    std::size_t taps_columns = 1;
    std::size_t stride_rows = 1;
    std::size_t stride_columns = 1;
    std::ptrdiff_t origin_rows = 0;
    std::ptrdiff_t origin_columns = 0;
    std::size_t dilation_rows = 1;
    std::size_t dilation_columns = 1;
    std::size_t pixel =
        depth;  ///< elements from a column to the next: more than the depth where that is a group of the channels

    /// Rows and columns that `count` neighbouring outputs see together.
    [[nodiscard]] constexpr std::size_t seen_rows(std::size_t count) const noexcept {
        return (count - 1) * stride_rows + reach(taps_rows, dilation_rows);
    }
    [[nodiscard]] constexpr std::size_t seen_columns() const noexcept {
        return (out_columns - 1) * stride_columns + reach(taps_columns, dilation_columns);
    }
    /// Links of the chain of one output, and those of one kernel row.
    [[nodiscard]] constexpr std::size_t links() const noexcept { return taps_rows * taps_columns * depth; }
    [[nodiscard]] constexpr std::size_t row_links() const noexcept { return taps_columns * depth; }
    /// Some window reaches out of its image.
    [[nodiscard]] constexpr bool padded() const noexcept {
        return origin_rows < 0 || origin_columns < 0 ||
               origin_rows + static_cast<std::ptrdiff_t>(seen_rows(out_rows)) > static_cast<std::ptrdiff_t>(rows) ||
               origin_columns + static_cast<std::ptrdiff_t>(seen_columns()) > static_cast<std::ptrdiff_t>(columns);
    }
};

/// Outputs along one dimension, of `count`, that see a position inside of the image `tap` positions after the first one
/// that they see.
[[nodiscard]] constexpr parallel::block inside(std::size_t count, std::size_t stride, std::ptrdiff_t origin,
                                               std::size_t tap, std::size_t size) noexcept {
    const std::ptrdiff_t first = origin + static_cast<std::ptrdiff_t>(tap);
    const auto step = static_cast<std::ptrdiff_t>(stride);
    const std::ptrdiff_t before = first < 0 ? (step - 1 - first) / step : 0;
    const std::ptrdiff_t room = static_cast<std::ptrdiff_t>(size) - first;
    const std::ptrdiff_t after =
        std::clamp(room > 0 ? (room + step - 1) / step : 0, std::ptrdiff_t{0}, static_cast<std::ptrdiff_t>(count));
    return {static_cast<std::size_t>(std::min(before, after)), static_cast<std::size_t>(after)};
}

/// A block of outputs: the same rows of one or more samples.
struct output_block {
    parallel::block samples;
    parallel::block rows;

    [[nodiscard]] constexpr std::size_t pixels(std::size_t columns) const noexcept {
        return samples.size() * rows.size() * columns;
    }
};

/// How outputs are cut into blocks of about `target` pixels, and into no fewer than there are threads.
struct output_blocks {
    std::size_t batch = 0;
    std::size_t out_rows = 0;
    std::size_t samples = 1;  ///< in a block, at most
    std::size_t cuts = 1;     ///< of the rows of a sample

    constexpr output_blocks(std::size_t batch_size, const sliding& s, std::size_t target, std::size_t threads) noexcept
        : batch{batch_size}, out_rows{s.out_rows} {
        const std::size_t high = std::clamp<std::size_t>((target + s.out_columns / 2) / s.out_columns, 1, out_rows);
        cuts = (out_rows + high - 1) / high;
        if (cuts == 1)
            samples = std::clamp<std::size_t>(target / (out_rows * s.out_columns), 1, std::max<std::size_t>(batch, 1));
        if (threads <= 1 || batch == 0) return;
        samples = std::min(samples, (batch + threads - 1) / threads);
        if (batch < threads) cuts = std::max(cuts, std::min(out_rows, (threads + batch - 1) / batch));
    }
    [[nodiscard]] constexpr std::size_t count() const noexcept { return (batch + samples - 1) / samples * cuts; }
    [[nodiscard]] constexpr output_block operator[](std::size_t index) const noexcept {
        const std::size_t first = index / cuts * samples;
        return {{first, std::min(batch, first + samples)}, parallel::split(out_rows, cuts, index % cuts)};
    }
    /// Rows of the highest block.
    [[nodiscard]] constexpr std::size_t highest() const noexcept { return (out_rows + cuts - 1) / cuts; }
};

/// The source of one block of outputs: the images themselves, or a padded copy in scratch.
template <class T>
struct window {
    const T* data = nullptr;  ///< of the block's first sample and row, at the first column seen
    std::size_t sample_pitch = 0;
    std::size_t row_pitch = 0;
    std::size_t pixel_pitch = 0;

    /// The links of a kernel row follow each other in memory; else those of one kernel position do.
    [[nodiscard]] bool side_by_side(const sliding& s) const noexcept {
        return s.taps_columns == 1 || s.dilation_columns * pixel_pitch == s.depth;
    }

    /// Elements that a copy of at most so many samples and output rows takes.
    static constexpr std::size_t copy_size(const sliding& s, std::size_t samples, std::size_t high) noexcept {
        return s.links() > 0 && s.padded() ? whole_lines<T>(samples * s.seen_rows(high) * s.seen_columns() * s.depth)
                                           : 0;
    }

    /// The pitches of plain images.
    explicit window(const sliding& s) noexcept
        : sample_pitch{s.rows * s.columns * s.pixel}, row_pitch{s.columns * s.pixel}, pixel_pitch{s.pixel} {}

    window(const sliding& s, const output_block& block, const T* from, T* copy) noexcept {
        if (s.links() == 0) {
            data = from;
            return;
        }
        const std::ptrdiff_t top = static_cast<std::ptrdiff_t>(block.rows.first * s.stride_rows) + s.origin_rows;
        if (!s.padded()) {
            *this = window{s};
            data = from + block.samples.first * sample_pitch + static_cast<std::size_t>(top) * row_pitch +
                   static_cast<std::size_t>(s.origin_columns) * s.pixel;
            return;
        }
        const std::size_t high = s.seen_rows(block.rows.size());
        pixel_pitch = s.depth;
        row_pitch = s.seen_columns() * s.depth;
        sample_pitch = high * row_pitch;
        data = copy;
        // Columns before, inside and after the image.
        const auto seen = static_cast<std::ptrdiff_t>(s.seen_columns());
        const auto before = std::clamp<std::ptrdiff_t>(-s.origin_columns, 0, seen);
        const auto after =
            std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(s.columns) - s.origin_columns, before, seen);
        const std::size_t left = static_cast<std::size_t>(before) * s.depth;
        const std::size_t inside = static_cast<std::size_t>(after - before) * s.depth;
        for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample)
            for (std::size_t r = 0; r < high; ++r, copy += row_pitch) {
                const std::ptrdiff_t row = top + static_cast<std::ptrdiff_t>(r);
                if (row < 0 || row >= static_cast<std::ptrdiff_t>(s.rows) || inside == 0) {
                    std::fill_n(copy, row_pitch, T{0});
                    continue;
                }
                const T* source = from + ((sample * s.rows + static_cast<std::size_t>(row)) * s.columns +
                                          static_cast<std::size_t>(s.origin_columns + before)) *
                                             s.pixel;
                std::fill_n(copy, left, T{0});
                if (s.pixel == s.depth)
                    std::copy_n(source, inside, copy + left);
                else
                    for (std::size_t at = 0; at < inside; at += s.depth, source += s.pixel)
                        std::copy_n(source, s.depth, copy + left + at);
                std::fill_n(copy + left + inside, row_pitch - left - inside, T{0});
            }
    }
};

/// Walks the output pixels of a block row by row: where each one's window begins, and where its output lies.
template <class T>
struct pixel_rows {
    std::size_t columns = 1;
    std::size_t rows = 1;
    const T* a = nullptr;
    T* c = nullptr;
    std::ptrdiff_t a_step = 0;  ///< to the next column; then what is to be added at the end of a row and of a sample
    std::ptrdiff_t c_step = 0;
    std::ptrdiff_t a_row = 0;
    std::ptrdiff_t c_row = 0;
    std::ptrdiff_t a_sample = 0;
    std::ptrdiff_t c_sample = 0;
    std::size_t column = 0;
    std::size_t row = 0;

    void next(const T*& row_a, T*& row_c) noexcept {
        row_a = a;
        row_c = c;
        a += a_step;
        c += c_step;
        if (++column < columns) return;
        column = 0;
        a += a_row;
        c += c_row;
        if (++row < rows) return;
        row = 0;
        a += a_sample;
        c += c_sample;
    }
};

/// Distances of output pixels in memory.
struct output_pitch {
    std::size_t column = 0;
    std::size_t row = 0;
    std::size_t sample = 0;
};

template <class T>
[[nodiscard]] pixel_rows<T> pixels_of(const sliding& s, const output_block& block, const window<T>& source, T* c,
                                      const output_pitch& pitch) noexcept {
    const auto distance = [](std::size_t to, std::size_t from) {
        return static_cast<std::ptrdiff_t>(to) - static_cast<std::ptrdiff_t>(from);
    };
    const std::size_t step = s.stride_columns * source.pixel_pitch;
    pixel_rows<T> out;
    out.columns = s.out_columns;
    out.rows = block.rows.size();
    out.a = source.data;
    out.a_step = distance(step, 0);
    out.a_row = distance(s.stride_rows * source.row_pitch, s.out_columns * step);
    out.a_sample = distance(source.sample_pitch, out.rows * s.stride_rows * source.row_pitch);
    out.c = c;
    out.c_step = distance(pitch.column, 0);
    out.c_row = distance(pitch.row, s.out_columns * pitch.column);
    out.c_sample = distance(pitch.sample, out.rows * pitch.row);
    return out;
}

}  // namespace lockstep::kernels::detail
