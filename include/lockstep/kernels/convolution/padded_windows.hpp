// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Outputs whose windows lie inside of the image read it where it is; only the windows that reach out of it are copied,
// with their padding.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/window.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels::detail {

///     c c c c c      outputs of an image; c: the window reaches into the padding and is copied,
///     c . . . c      .: the window is read where it lies in the image
///     c c c c c
/// Copies of windows, as many of them side by side as a row of the image is long: the rows of a window lie as far apart
/// as those of the image.
template <class T>
struct padded_windows {
    sliding s;
    parallel::block down = inside_all(s.out_rows, s.stride_rows, s.origin_rows, s.taps_rows,
                                      s.rows);  ///< rows of outputs that see no padding
    parallel::block across = inside_all(s.out_columns, s.stride_columns, s.origin_columns, s.taps_columns, s.columns);

    [[nodiscard]] static constexpr parallel::block inside_all(std::size_t count, std::size_t stride,
                                                              std::ptrdiff_t origin, std::size_t taps,
                                                              std::size_t size) noexcept {
        const parallel::block first = inside(count, stride, origin, 0, size),
                              last = inside(count, stride, origin, taps - 1, size);
        return {first.first, std::max(first.first, last.last)};
    }

    [[nodiscard]] constexpr std::size_t pitch() const noexcept { return s.columns * s.depth; }
    [[nodiscard]] constexpr std::size_t side_by_side() const noexcept { return s.columns / s.taps_columns; }
    [[nodiscard]] constexpr std::size_t region() const noexcept { return s.taps_rows * pitch(); }
    /// Windows of some rows of outputs that reach out of the image.
    [[nodiscard]] constexpr std::size_t count(parallel::block rows) const noexcept {
        const parallel::block seen{std::max(rows.first, down.first), std::min(rows.last, down.last)};
        return rows.size() * s.out_columns - (seen.first < seen.last ? seen.last - seen.first : 0) * across.size();
    }
    [[nodiscard]] constexpr std::size_t size(std::size_t copies) const noexcept {
        return whole_lines<T>((copies + side_by_side() - 1) / side_by_side() * region());
    }

    /// Whether they are fewer by far than the pixels of a padded copy, and windows overlap so little that this costs
    /// more than it saves. Depends on the sizes alone.
    [[nodiscard]] static constexpr bool fit(const sliding& s) noexcept {
        if (!s.padded() || s.links() == 0 || s.pixel != s.depth || s.dilation_rows > 1 || s.dilation_columns > 1 ||
            s.columns < s.taps_columns || s.taps_rows * s.taps_columns >= 4 * s.stride_rows * s.stride_columns)
            return false;
        const padded_windows all{s};
        return 2 * all.count({0, s.out_rows}) * s.taps_rows * s.taps_columns <
               s.seen_rows(s.out_rows) * s.seen_columns();
    }
    [[nodiscard]] static constexpr std::size_t copy_size(const sliding& s, const output_blocks& blocks) noexcept {
        const padded_windows all{s};
        std::size_t most = 0;
        for (std::size_t cut = 0; cut < blocks.cuts; ++cut) most = std::max(most, all.count(blocks[cut].rows));
        return all.size(blocks.samples * most);
    }

    /// The windows of a block in the order of its outputs.
    void copy(const output_block& block, const T* x, T* to) const noexcept {
        std::size_t slot = 0;
        for (std::size_t sample = block.samples.first; sample < block.samples.last; ++sample)
            for (std::size_t row = block.rows.first; row < block.rows.last; ++row) {
                const bool sees = row >= down.first && row < down.last;
                for (std::size_t column = 0; column < s.out_columns; ++column) {
                    if (sees && column == across.first) column = across.last;
                    if (column == s.out_columns) break;
                    const auto left = static_cast<std::ptrdiff_t>(column * s.stride_columns) + s.origin_columns;
                    const auto taps = static_cast<std::ptrdiff_t>(s.taps_columns);
                    const auto before = std::clamp<std::ptrdiff_t>(-left, 0, taps);
                    const auto after =
                        std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(s.columns) - left, before, taps);
                    const auto depth = static_cast<std::ptrdiff_t>(s.depth);
                    T* line = to + slot * s.row_links();
                    for (std::size_t tap = 0; tap < s.taps_rows; ++tap, line += pitch()) {
                        const auto at = static_cast<std::ptrdiff_t>(row * s.stride_rows + tap) + s.origin_rows;
                        if (at < 0 || at >= static_cast<std::ptrdiff_t>(s.rows) || before == after) {
                            std::fill_n(line, s.row_links(), T{0});
                            continue;
                        }
                        const T* const from = x + ((sample * s.rows + static_cast<std::size_t>(at)) * s.columns +
                                                   static_cast<std::size_t>(left + before)) *
                                                      s.depth;
                        std::fill(line, line + before * depth, T{0});
                        std::copy_n(from, (after - before) * depth, line + before * depth);
                        std::fill(line + after * depth, line + taps * depth, T{0});
                    }
                    if (++slot < side_by_side()) continue;
                    slot = 0;
                    to += region();
                }
            }
    }
};

/// Walks the outputs of a block, as pixel_rows does: where each one's window begins, in the image or among the copies.
template <class T>
struct edged_rows {
    padded_windows<T> of;
    pixel_rows<T> all;  ///< as if all windows lay in the image
    const T* copies = nullptr;
    std::size_t first_row = 0;  ///< of the block's rows
    std::size_t slot = 0;

    void next(const T*& row_a, T*& row_c) noexcept {
        const std::size_t column = all.column, row = first_row + all.row;
        all.next(row_a, row_c);
        if (column >= of.across.first && column < of.across.last && row >= of.down.first && row < of.down.last) return;
        row_a = copies + slot * of.s.row_links();
        if (++slot < of.side_by_side()) return;
        slot = 0;
        copies += of.region();
    }
};

}  // namespace lockstep::kernels::detail
