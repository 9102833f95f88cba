// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The register tile of a weight gradient whose kernel rows have few links: the links of a kernel row, or of all kernel rows, lie behind one address each.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/kernels/matrix_tile.hpp"
#include "lockstep/kernels/tile.hpp"
#include "lockstep/kernels/window.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels::detail {

/// Some rows of outputs of one sample, and the weights that they are added to: chains over pixels in ascending order.
template <class T>
struct link_tile {
    const T* x = nullptr;  ///< first link of the first output
    std::size_t x_run = 0;
    std::size_t x_step = 0;
    std::size_t x_row = 0;
    const T* dy = nullptr;
    std::size_t dy_step = 0;
    std::size_t rows = 0;
    std::size_t columns = 0;
    T* dw = nullptr;
    std::size_t dw_run = 0;
    std::size_t ld = 0;
    T* dbias = nullptr;                 ///< sums of dy
    std::size_t wide = simd::width<T>;  ///< filters of the last vector

    static constexpr std::size_t width = simd::width<T>;

    /// Continues the sums of Runs x Links links and of Vectors vectors of filters; those of dy, too, where `WithBias`.
    template <std::size_t Runs, std::size_t Links, std::size_t Vectors, bool WithBias = false>
    [[gnu::noinline]] void run() const noexcept {
        using batch = simd::batch<T>;
        const std::size_t last = wide;
        const auto load = [last](const T* from, std::size_t v) LOCKSTEP_FLATTEN {
            return v + 1 < Vectors ? simd::load(from + v * width) : simd::load_first(from + v * width, last);
        };
        const auto place = [&](std::size_t i) LOCKSTEP_FLATTEN { return dw + i / Links * dw_run + i % Links * ld; };
        accumulators<T, Runs * Links, Vectors> tile;
        tile.each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN { tile.sum[i][v] = load(place(i), v); });
        batch bias(T{0});
        if constexpr (WithBias) bias = load(dbias, 0);
        const std::size_t step = x_step, y_step = dy_step;
        const T* right = dy;
        for (std::size_t row = 0; row < rows; ++row) {
            const T* at[Runs];
            unroll<Runs>([&](auto r) LOCKSTEP_FLATTEN { at[r] = x + row * x_row + r * x_run; });
            for (std::size_t left = columns; left > 0; --left) {
                batch first = load(right, 0);
                simd::pin(first);
                if constexpr (WithBias) bias = bias + first;
                tile.step_pinned([&](std::size_t v) LOCKSTEP_FLATTEN { return v == 0 ? first : load(right, v); },
                                 [&](std::size_t i) LOCKSTEP_FLATTEN -> const T& { return at[i / Links][i % Links]; });
                unroll<Runs>([&](auto r) LOCKSTEP_FLATTEN { advance(at[r], step); });
                right += y_step;
            }
        }
        tile.each([&](std::size_t i, std::size_t v) LOCKSTEP_FLATTEN {
            if (v + 1 < Vectors)
                simd::store(place(i) + v * width, tile.sum[i][v]);
            else
                simd::store_first(place(i) + v * width, tile.sum[i][v], last);
        });
        if constexpr (WithBias) simd::store_first(dbias, bias, last);
    }

    /// All links of few at once, one vector of filters: kernels of three rows of nine links, and of five of five.
    [[nodiscard]] static constexpr bool holds_kernel(const sliding& s, std::size_t n) noexcept {
        return simd::registers >= 32 && n <= width && s.pixel == s.depth && s.dilation_columns == 1 &&
               ((s.taps_rows == 3 && s.row_links() == 9) || (s.taps_rows == 5 && s.row_links() == 5));
    }
    void add_kernel(std::size_t links) const noexcept {
        if (links == 9)
            dbias ? run<3, 9, 1, true>() : run<3, 9, 1>();
        else
            dbias ? run<5, 5, 1, true>() : run<5, 5, 1>();
    }

    /// Links of one kernel row that a tile of two vectors takes: fewer than registers would hold, because numbers to come need some. Calls
    /// f(links constant), or other() if there are fewer still.
    template <class F, class Other>
    static void with_links(std::size_t count, const F& f, const Other& other) noexcept {
        constexpr std::size_t fewest = high_tile / 2 + 1;
        if (count < fewest || count > high_tile) return other();
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (void)((count == fewest + I ? (f(std::integral_constant<std::size_t, fewest + I>{}), true) : false) || ...);
        }
        (std::make_index_sequence<high_tile - fewest + 1>{});
    }
};

}  // namespace lockstep::kernels::detail
