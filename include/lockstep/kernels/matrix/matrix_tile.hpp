// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The register tile of matrix products: operands packed or straight from the matrices, cache lines of what comes next
// fetched on the way.
// Tested by tests/unit/kernels/matrix/gemm.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels {

namespace detail {

struct lane_stretch;

/// What a kernel does beside its products: nothing, it fetches memory that is wanted next, it packs the next panel of
/// B, whose rows lie in those of its matrix, or it fetches one whose rows lie in columns: to transpose them would cost
/// the tile the registers of its sums. Between two groups of links all of it costs next to nothing.
enum class beside { nothing, fetch, rows, columns };

/// The part of a panel that is still to be packed or fetched. What will be read soon is fetched: first the rest of this
/// panel, then the beginning of the next.
template <class T>
struct panel_walk {
    beside what = beside::nothing;
    const T* from = nullptr;
    std::size_t ld = 0;
    std::size_t second = 0;  ///< distance of the second vector's columns from the first's
    T* to = nullptr;
    std::size_t left = 0;    ///< links to pack
    std::size_t column = 0;  ///< of the panel, where columns are fetched
    std::size_t burst = 1;   ///< steps at a time
    std::size_t period = 1;  ///< groups of links from one time to the next
    std::size_t wait = ~std::size_t{0};
    const T* fetch = nullptr;
    std::size_t fetch_left = 0;  ///< rows to fetch before the next panel begins, or columns of this one
    const T* next = nullptr;

    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t line = simd::alignment / sizeof(T);
    /// Of rows to pack: to the first level (3), or to the second where short vectors keep the first for the tile.
    static constexpr int nearness = simd::registers > 16 ? 3 : 2;

    /// The lines from `at` on, one a turn.
    void fetch_lines(const T* at) noexcept {
        what = beside::fetch;
        wait = 1;
        fetch = at;
    }
    /// One link.
    LOCKSTEP_FLATTEN void pack_row() noexcept {
        const simd::batch<T> near = simd::load(from);
        const simd::batch<T> far = simd::load(from + second);
        simd::store(to, near);
        simd::store(to + width, far);
        from += ld;
        to += 2 * width;
        --left;
        __builtin_prefetch(fetch, 0, nearness);
        if constexpr (2 * width > line) __builtin_prefetch(fetch - width, 0, nearness);
        fetch += ld;
        if (--fetch_left == 0) fetch = next;
    }
    /// A cache line of one column.
    LOCKSTEP_FLATTEN void fetch_column() noexcept {
        __builtin_prefetch(fetch, 0, 2);
        fetch += ld;
        if (++column < fetch_left) return;
        column = 0;
        fetch = from += line;
        left -= std::min(left, line);
    }
    /// Its turn between two groups of links; returns the number of groups until the next.
    LOCKSTEP_FLATTEN std::size_t take_turn() noexcept {
        if (what == beside::fetch) {
            __builtin_prefetch(fetch, 0, 2);
            fetch += line;
        } else if (what == beside::rows) {
            for (std::size_t i = burst; i > 0 && left > 0; --i) pack_row();
        } else {
            for (std::size_t i = burst; i > 0 && left > 0; --i) fetch_column();
        }
        return period;
    }
};

/// `tiles` tiles, one below the other: `links` links of the chains of a few rows x two vectors in each. The second
/// vector begins `second` columns after the first and may overlap it: both hold the same chains there, so that no row
/// needs a mask at its end.
template <class T>
struct tile_task {
    const T* a = nullptr;
    std::size_t lda = 0;     ///< between rows of the tile
    std::size_t a_link = 1;  ///< between links
    std::size_t a_tile = 0;  ///< between tiles
    const T* b = nullptr;
    std::size_t ldb = 0;
    std::size_t b_second = 0;
    std::size_t links = 0;
    const T* from = nullptr;  ///< what the chains have come to
    std::size_t from_ld = 0;
    std::size_t from_second = 0;
    std::size_t from_tile = 0;
    T* to = nullptr;  ///< rows of tiles follow each other at the same distance
    std::size_t to_ld = 0;
    std::size_t to_second = 0;
    bool fetches = true;   ///< lines of C beforehand
    bool streams = false;  ///< whole lines of C, past the caches
    std::size_t tiles = 1;
    panel_walk<T>* walk = nullptr;          ///< never null
    const lane_stretch* stretch = nullptr;  ///< lanes, one if there is no tree: see lane_tile.hpp
    T* held = nullptr;                      ///< sums that wait, of the first tile
    std::size_t held_tile = 0;              ///< between tiles
    std::size_t held_level = 0;             ///< between sums of one tile
};

/// One addition, done here: multiples of a stride that are computed beforehand cost more at the start of a short tile
/// than they save.
template <class T>
LOCKSTEP_FLATTEN inline void advance(const T*& at, std::size_t by) noexcept {
    at += by;
#if defined(__GNUC__)
    asm("" : "+r"(at));
#endif
}

/// Links between two looks at what is to be packed or fetched.
inline constexpr std::size_t link_group = 8;

/// Rows of a tile that has time for other things.
inline constexpr std::size_t high_tile = tile_rows - (tile_rows + 4) / 8;

/// Two vectors of B and the elements of A that multiply them: one link of every chain. `element(i)` is A's element in
/// row i, broadcast once for both: inside of the multiply-adds each of them would load it, instructions less but loads
/// more, which cost more where a core is not shared.
template <class T, std::size_t Height, class Element>
LOCKSTEP_FLATTEN inline void add_link(simd::batch<T> (&sum)[Height][tile_vectors], const T* b, std::size_t second,
                                      const Element& element) noexcept {
    simd::batch<T> near = simd::load(b);
    simd::batch<T> far = simd::load(b + second);
    simd::pin(near);
    simd::pin(far);
    LOCKSTEP_UNROLL
    for (std::size_t i = 0; i < Height; ++i) {
        simd::batch<T> left(element(i));
        if constexpr (simd::broadcasts_in_place) simd::pin(left);
        simd::add_product(sum[i][0], left, near);
        simd::add_product(sum[i][1], left, far);
    }
}

/// The lines of C that a tile will store to, and those that the next one starts from, a row at a time between groups of
/// links: stores and loads that wait for memory hold up those of the products, and many lines at once hold up all
/// others.
template <class T>
struct end_lines {
    const T* to;
    const T* from;
    std::size_t rows;  ///< left

    LOCKSTEP_FLATTEN void fetch_row(const tile_task<T>& task) noexcept {
        constexpr bool two_lines = tile_columns<T> * sizeof(T) > simd::alignment;
        __builtin_prefetch(from, 0, 3);
        if constexpr (two_lines) __builtin_prefetch(from + task.from_second, 0, 3);
        if (!task.streams) {
            __builtin_prefetch(to, 1, 3);
            if constexpr (two_lines) __builtin_prefetch(to + task.to_second, 1, 3);
        }
        to += task.to_ld;
        from += task.from_ld;
        --rows;
    }
};

/// The links of a tile, in groups with what is to be done beside them: link(count) adds so many. Several at a time in
/// the tiles that do nearly all of the work.
template <std::size_t Height, class T, class Link>
LOCKSTEP_FLATTEN inline void run_links(const tile_task<T>& task, std::size_t links, std::size_t& wait,
                                       end_lines<T>& ends, const Link& link) noexcept {
    constexpr std::size_t several = Height < high_tile ? 1 : simd::registers > 16 ? 4 : link_group;
    panel_walk<T>& walk = *task.walk;
    for (; links >= link_group; links -= link_group) {
        if (--wait == 0) wait = walk.take_turn();
        if (ends.rows > 0) ends.fetch_row(task);
#pragma GCC unroll 1
        for (std::size_t i = 0; i < link_group; i += several) link(std::integral_constant<std::size_t, several>{});
    }
#pragma GCC unroll 1
    for (; links > 0; --links) link(std::integral_constant<std::size_t, 1>{});
}

/// Tiles of A as its rows lie, `lda` apart.
template <class T, std::size_t Height>
void run_row_tiles(const tile_task<T>& task) noexcept {
    // A row pointer for every third row: the others are one and two leading dimensions away, which an address can say.
    constexpr std::size_t pointers = (Height + 2) / 3;
    const std::size_t lda = task.lda;
    const std::size_t ldb = task.ldb;
    const std::size_t b_second = task.b_second;
    const T* first = task.a;
    const T* from = task.from;
    T* to = task.to;
    std::size_t wait = task.walk->wait;
    for (std::size_t tile = task.tiles; tile > 0; --tile) {
        simd::batch<T> sum[Height][tile_vectors];
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Height; ++i) {
            sum[i][0] = simd::load(from + i * task.from_ld);
            sum[i][1] = simd::load(from + i * task.from_ld + task.from_second);
        }
        from += task.from_tile;
        const T* a[pointers];
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < pointers; ++i) a[i] = first + i * 3 * lda;
        const T* b = task.b;
        end_lines<T> ends{to, from, task.fetches ? Height : 0};
        run_links<Height>(task, task.links, wait, ends, [&](auto count) LOCKSTEP_FLATTEN {
            unroll<count>([&](auto link) LOCKSTEP_FLATTEN {
                const auto element = [&](std::size_t i)
                                         LOCKSTEP_FLATTEN -> const T& { return (a[i / 3] + i % 3 * lda)[link]; };
                add_link(sum, b, b_second, element);
                advance(b, ldb);
            });
            LOCKSTEP_UNROLL
            for (std::size_t i = 0; i < pointers; ++i) advance(a[i], count);
        });
        LOCKSTEP_UNROLL
        for (std::size_t i = 0; i < Height; ++i, to += task.to_ld) {
            simd::store(to, sum[i][0]);
            simd::store(to + task.to_second, sum[i][1]);
        }
        first += task.a_tile;
    }
    task.walk->wait = wait;
}

template <class T>
using tile_kernel = void (*)(const tile_task<T>&) noexcept;

/// The tile of every height. A panel of one vector has it twice: that costs less than twice as many kernels would to
/// compile.
template <class T>
inline constexpr auto row_tile_kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<tile_kernel<T>, tile_rows>{&run_row_tiles<T, I + 1>...};
}
(std::make_index_sequence<tile_rows>{});

/// A run of rows or columns.
struct span_of {
    std::size_t first = 0;
    std::size_t size = 0;
};

/// Rows cut into as few tiles as possible, which are equally high as far as possible, the higher ones first.
struct row_tiles {
    std::size_t count = 0;
    std::size_t low = 0;
    std::size_t higher = 0;  ///< how many have one more row

    explicit constexpr row_tiles(std::size_t m) noexcept
        : count{(m + tile_rows - 1) / tile_rows}, low{count ? m / count : 0}, higher{count ? m % count : 0} {}
    [[nodiscard]] constexpr span_of operator[](std::size_t tile) const noexcept {
        return {tile * low + std::min(tile, higher), low + (tile < higher ? 1 : 0)};
    }
};

/// Columns cut into panels of tile_columns. None is narrower than a vector unless all of them together are: the one
/// before gives some away.
template <class T>
struct column_panels {
    std::size_t n = 0;
    std::size_t count = 0;

    explicit constexpr column_panels(std::size_t columns) noexcept
        : n{columns}, count{(columns + tile_columns<T> - 1) / tile_columns<T>} {}
    [[nodiscard]] constexpr bool narrow() const noexcept { return n < simd::width<T>; }
    [[nodiscard]] constexpr span_of operator[](std::size_t panel) const noexcept {
        const std::size_t last = n - (count - 1) * tile_columns<T>;
        const std::size_t lent = count > 1 && last < simd::width<T> ? simd::width<T> - last : 0;
        if (panel + 1 == count) return {panel * tile_columns<T> - lent, last + lent};
        return {panel * tile_columns<T>, tile_columns<T> - (panel + 2 == count ? lent : 0)};
    }
};

}  // namespace detail

}  // namespace lockstep::kernels
