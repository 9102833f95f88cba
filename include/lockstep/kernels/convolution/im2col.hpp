// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Convolution as a matrix product: the windows of a block of output pixels are copied into the rows of a matrix, patch
// by patch.

#include <algorithm>
#include <cstddef>

#include "lockstep/kernels/convolution/convolution.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/library.hpp"
#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels {

namespace detail {

///     image   a b c      kernel of 2 x 2      patches   a b d e    output (0, 0)
///             d e f                                     b c e f    output (0, 1)
/// The patches of the output pixels of a minibatch, counted through all samples. A patch is kernel rows x kernel
/// columns x channels long.
template <class T>
struct patches {
    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t near_bytes = std::size_t{3} << 17;  ///< of a block in the second-level cache

    convolution g;
    std::size_t batch;

    [[nodiscard]] constexpr std::size_t links() const noexcept { return g.kernel_rows * g.kernel_columns * g.channels; }
    [[nodiscard]] constexpr std::size_t pixels() const noexcept { return batch * g.out_rows() * g.out_columns(); }
    /// Pixels of a block, of `all`: enough of them that a product reads the weights seldom.
    [[nodiscard]] constexpr std::size_t block(std::size_t all) const noexcept {
        const std::size_t most = std::clamp<std::size_t>(near_bytes / (links() * sizeof(T)), 256, 4096);
        return std::min(all, round_up(most, tile_rows));
    }
    [[nodiscard]] constexpr std::size_t size(std::size_t count) const noexcept {
        return whole_lines<T>(count * links());
    }

    /// What a pixel sees of one row of x: elements of its window before the image, and inside; `first` and `at` are
    /// those of the first kernel row.
    struct window {
        std::size_t before, inside;
        std::size_t first;  ///< row of x; rows above the image wrap round and are beyond its end as well
        std::size_t at;     ///< where the inside of that row begins in x
    };

    /// Calls f(window) for each pixel of `block`.
    template <class F>
    LOCKSTEP_FLATTEN void for_windows(parallel::block block, F&& f) const noexcept {
        const convolution size = g;  // a vector that is stored may lie anywhere, to the compiler: not in here
        const std::size_t across = size.out_columns(), down = size.out_rows();
        const auto wide = static_cast<std::ptrdiff_t>(size.kernel_columns),
                   columns = static_cast<std::ptrdiff_t>(size.columns);
        std::size_t sample = block.first / (across * down), r = block.first / across % down, c = block.first % across;
        for (std::size_t pixel = block.first; pixel < block.last; ++pixel) {
            const auto column =
                static_cast<std::ptrdiff_t>(c * size.stride_columns) - static_cast<std::ptrdiff_t>(size.pad_left);
            const auto before = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(-column, 0, wide));
            const auto end = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(columns - column, 0, wide));
            const std::size_t first = r * size.stride_rows - size.pad_top;
            f(window{before * size.channels, end > before ? (end - before) * size.channels : 0, first,
                     ((sample * size.rows + first) * size.columns + static_cast<std::size_t>(column) + before) *
                         size.channels});
            if (++c < across) continue;
            c = 0;
            if (++r < down) continue;
            r = 0;
            ++sample;
        }
    }

    /// Writes the patches of `block`, the first of them at `to`; padding is zeros.
    void copy(parallel::block block, const T* x, T* to) const noexcept {
        const std::size_t run = g.kernel_columns * g.channels, pitch = g.columns * g.channels, taps = g.kernel_rows,
                          rows = g.rows;
        const std::size_t vectors = round_up(run, width), length = taps * run;
        // Whole vectors hang over the end of a run: what they write there is written again by the runs after it.
        const auto before_end = [](std::size_t size, std::size_t remainder) {
            return size - std::min(size, remainder);
        };
        const std::size_t safe_from = before_end(batch * g.in_size(), (taps - 1) * pitch + vectors);
        const T* const safe_to = to + before_end(block.size() * length, (taps - 1) * run + vectors);
        for_windows(block, [&](const window& seen) LOCKSTEP_FLATTEN {
            T* const end = to + length;
            if (seen.inside == run && seen.first < rows && seen.first + taps <= rows && seen.at < safe_from &&
                to < safe_to) {
                for (const T* from = x + seen.at; to < end; to += run, from += pitch)
                    for (std::size_t i = 0; i < run; i += width) simd::store(to + i, simd::load(from + i));
                return;
            }
            std::size_t at = seen.at;
            for (std::size_t row = seen.first; to < end; ++row, to += run, at += pitch) {
                const std::size_t inside = row < rows ? seen.inside : 0, before = inside > 0 ? seen.before : run;
                std::fill_n(to, before, T{0});
                if (inside > 0) std::copy_n(x + at, inside, to + before);
                std::fill_n(to + before + inside, run - before - inside, T{0});
            }
        });
    }

    /// Adds the patches of `block` to the pixels that they were cut from, in ascending order of patches.
    void add(parallel::block block, const T* from, T* x) const noexcept {
        const std::size_t run = g.kernel_columns * g.channels, pitch = g.columns * g.channels, taps = g.kernel_rows,
                          rows = g.rows;
        for_windows(block, [&](const window& seen) LOCKSTEP_FLATTEN {
            std::size_t at = seen.at;
            for (std::size_t row = seen.first, end = row + taps; row != end; ++row, from += run, at += pitch) {
                if (row >= rows || seen.inside == 0) continue;
                const T* const part = from + seen.before;
                T* const to = x + at;
                std::size_t i = 0;
                for (; i + width <= seen.inside; i += width)
                    simd::store(to + i, simd::load(to + i) + simd::load(part + i));
                const std::size_t rest = seen.inside - i;
                if (rest > 0)
                    simd::store_first(to + i, simd::load_first(to + i, rest) + simd::load_first(part + i, rest), rest);
            }
        });
    }
};

}  // namespace detail

/// Elements of scratch of im2col_forward for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t im2col_forward_scratch(const convolution& g, std::size_t batch,
                                                           parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    const detail::patches<T> from{g, batch};
    const std::size_t block = from.block(from.pixels());
    return static_cast<std::size_t>(team.threads) *
           (from.size(block) + gemm_scratch<T>(block, g.filters, from.links(), {1}));
}

/// y = x * w + bias; bias has `filters` entries or is null. Each output is one chain of fused multiply-adds from the
/// bias over kernel rows, kernel columns and channels; padding takes part as zeros. Threads share out the pixels. Cost:
/// batch x flops(), each input is copied as often as windows see it. Paper: Chellapilla, Puri, Simard, High Performance
/// Convolutional Neural Networks for Document Processing (2006).
template <class T>
void im2col_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                    resources<T> use) noexcept {
    if (detail::is_empty(g) || batch == 0) return;
    const detail::patches<T> from{g, batch};
    const std::size_t step = from.block(from.pixels()), links = from.links();
    const std::size_t own = from.size(step), share = own + gemm_scratch<T>(step, g.filters, links, {1});
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        T* const rows = use.scratch.data() + thread * share;
        const auto mine =
            parallel::split(from.pixels(), static_cast<std::size_t>(use.team.threads), thread, detail::tile_rows);
        for (std::size_t first = mine.first; first < mine.last; first += step) {
            const parallel::block block{first, std::min(mine.last, first + step)};
            from.copy(block, x, rows);
            gemm<T>(transpose::no, transpose::no, block.size(), g.filters, links, rows, links, w, g.filters,
                    y + first * g.filters, g.filters, bias, {{1}, {rows + own, share - own}});
        }
    });
}

/// Elements of scratch of im2col_backward_data for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t im2col_backward_data_scratch(const convolution& g, std::size_t batch,
                                                                 parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    const detail::patches<T> to{g, batch};
    const std::size_t block = to.block(to.pixels());
    return static_cast<std::size_t>(team.threads) *
           (to.size(block) + gemm_scratch<T>(block, to.links(), g.filters, {1}));
}

/// dx = the gradient with respect to x, from dy: patches of it are chains from zero over the filters, and are added to
/// dx in ascending order of output pixels. Threads share out the samples. Cost: batch x flops(), and an addition for
/// each element of each window.
template <class T>
void im2col_backward_data(const convolution& g, std::size_t batch, const T* dy, const T* w, T* dx,
                          resources<T> use) noexcept {
    if (batch == 0) return;
    if (detail::is_empty(g)) {
        std::fill_n(dx, batch * g.in_size(), T{0});
        return;
    }
    const detail::patches<T> to{g, batch};
    const std::size_t step = to.block(to.pixels()), links = to.links(), of_sample = g.out_rows() * g.out_columns();
    const std::size_t own = to.size(step), share = own + gemm_scratch<T>(step, links, g.filters, {1});
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        T* const rows = use.scratch.data() + thread * share;
        const auto samples = parallel::split(batch, static_cast<std::size_t>(use.team.threads), thread);
        std::fill_n(dx + samples.first * g.in_size(), samples.size() * g.in_size(), T{0});
        const std::size_t last = samples.last * of_sample;
        for (std::size_t first = samples.first * of_sample; first < last; first += step) {
            const parallel::block block{first, std::min(last, first + step)};
            gemm<T>(transpose::no, transpose::yes, block.size(), links, g.filters, dy + first * g.filters, g.filters, w,
                    g.filters, rows, links, nullptr, {{1}, {rows + own, share - own}});
            to.add(block, rows, dx);
        }
    });
}

/// Elements of scratch of im2col_backward_weights for at most `batch` samples.
template <class T>
[[nodiscard]] constexpr std::size_t im2col_backward_weights_scratch(const convolution& g, std::size_t batch,
                                                                    parallel::team team) noexcept {
    if (detail::is_empty(g) || batch == 0) return 0;
    const detail::patches<T> from{g, batch};
    const std::size_t block = from.block(from.pixels());
    return from.size(block) + gemm_scratch<T>(from.links(), g.filters, block, team);
}

/// dw = the gradient with respect to the weights, dbias (filters entries, or null) that with respect to the bias. Each
/// element is one chain from zero over samples, output rows and output columns; it goes on from block to block. Threads
/// split dw. Cost: batch x flops(), each input is copied as often as windows see it.
template <class T>
void im2col_backward_weights(const convolution& g, std::size_t batch, const T* x, const T* dy, T* dw, T* dbias,
                             resources<T> use) noexcept {
    if (dbias) std::fill_n(dbias, g.filters, T{0});
    if (batch == 0 || detail::is_empty(g)) {
        std::fill_n(dw, g.weight_count(), T{0});
        return;
    }
    const detail::patches<T> from{g, batch};
    const std::size_t step = from.block(from.pixels()), links = from.links(), own = from.size(step);
    T* const rows = use.scratch.data();
    const resources<T> rest{use.team, use.scratch.subspan(own)};
    for (std::size_t first = 0; first < from.pixels(); first += step) {
        const std::size_t count = std::min(step, from.pixels() - first);
        const T* const right = dy + first * g.filters;
        parallel::on_each_thread(use.team, [&](std::size_t thread) {
            const auto mine = parallel::split(count, static_cast<std::size_t>(use.team.threads), thread);
            from.copy({first + mine.first, first + mine.last}, x, rows + mine.first * links);
        });
        if (first == 0)
            gemm<T>(transpose::yes, transpose::no, links, g.filters, count, rows, links, right, g.filters, dw,
                    g.filters, nullptr, rest);
        else
            gemm_accumulate<T>(transpose::yes, transpose::no, links, g.filters, count, rows, links, right, g.filters,
                               dw, g.filters, rest);
        if (dbias) detail::continue_column_sums(count, g.filters, right, g.filters, dbias);
    }
}

LOCKSTEP_TEMPLATE(im2col_forward<float>);
LOCKSTEP_TEMPLATE(im2col_backward_data<float>);
LOCKSTEP_TEMPLATE(im2col_backward_weights<float>);

}  // namespace lockstep::kernels
