// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Copies of a few channels of neighbouring pixels, for images whose pixels lie so far apart that they share few sets of
// a cache.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

///     image   pixel 0: c0 c1 .. c1023 | pixel 1: c0 c1 .. c1023 | ..     4 KB apart: one set of a cache
///     copy    pixel 0: c0 .. c15 | pixel 1: c0 .. c15 | ..               side by side
/// Room for a copy, on the stack: a part of the smallest first-level cache.
template <class T>
struct channel_copy {
    static constexpr std::size_t room = 28 * 1024 / sizeof(T);
    alignas(simd::alignment) T numbers[room];

    /// The channels of a copy of which `of(channels, rows)` numbers find room for four rows of outputs; 0: pixels are
    /// to be read where they lie. A first-level cache has 64 sets of 64 bytes: pixels a multiple of 4 KB apart share
    /// one of them, and the window of one tile of outputs is more than this one holds. A copy pays where what is copied
    /// is seen more than four times.
    template <class Of>
    [[nodiscard]] static constexpr std::size_t channels(const sliding& s, std::size_t rows, const Of& of) noexcept {
        constexpr std::size_t least = 4 * simd::width<T>;
        if (s.pixel * sizeof(T) % 4096 != 0 || rows == 0) return 0;
        if (s.taps_rows * s.taps_columns <= 4 * s.stride_rows * s.stride_columns) return 0;
        for (const std::size_t count : {2 * least, least})
            if (s.pixel % count == 0 && of(count, std::min<std::size_t>(rows, 4)) <= room) return count;
        return 0;
    }
    /// The most of these rows of outputs for which there is room.
    template <class Of>
    [[nodiscard]] static constexpr std::size_t rows(std::size_t rows, std::size_t channels, const Of& of) noexcept {
        while (rows > 1 && of(channels, rows) > room) --rows;
        return rows;
    }

    /// `channels` of pixels that are `pixel` apart, side by side.
    static void copy(const T* from, std::size_t pixels, std::size_t pixel, std::size_t channels, T* to) noexcept {
        for (; pixels > 0; --pixels, from += pixel)
            for (std::size_t c = 0; c < channels; c += simd::width<T>, to += simd::width<T>)
                simd::store(to, simd::load(from + c));
    }
};

/// The rows of an image that some rows of outputs see.
[[nodiscard]] constexpr parallel::block seen_by(const sliding& s, parallel::block outputs) noexcept {
    const std::ptrdiff_t top = static_cast<std::ptrdiff_t>(outputs.first * s.stride_rows) + s.origin_rows;
    const auto end = static_cast<std::ptrdiff_t>(s.rows);
    const std::ptrdiff_t first = std::clamp<std::ptrdiff_t>(top, 0, end);
    const std::ptrdiff_t last =
        std::clamp<std::ptrdiff_t>(top + static_cast<std::ptrdiff_t>(s.seen_rows(outputs.size())), first, end);
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(last)};
}

/// The window over a copy of these rows, with so many channels.
[[nodiscard]] constexpr sliding over_copy(sliding s, parallel::block rows, std::size_t channels) noexcept {
    s.origin_rows -= static_cast<std::ptrdiff_t>(rows.first);
    s.rows = rows.size();
    s.pixel = channels;
    return s;
}

/// Calls f(sample, its rows) for a block of the rows of all samples.
template <class F>
constexpr void for_sample_rows(parallel::block all, std::size_t rows, const F& f) noexcept {
    while (all.first < all.last) {
        const std::size_t sample = all.first / rows, first = all.first % rows,
                          count = std::min(rows - first, all.last - all.first);
        f(sample, parallel::block{first, first + count});
        all.first += count;
    }
}

}  // namespace lockstep::kernels::detail
