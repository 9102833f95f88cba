// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One thread's part of a matrix product: cache blocks, packing, and the order in which register tiles are computed.
// Tested by tests/unit/kernels/matrix/gemm.cpp.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/kernels/matrix/few_rows.hpp"
#include "lockstep/kernels/matrix/lane_tile.hpp"
#include "lockstep/kernels/matrix/matrix_tile.hpp"
#include "lockstep/kernels/matrix/near_product.hpp"
#include "lockstep/kernels/matrix/pack.hpp"
#include "lockstep/kernels/matrix/product.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels {

namespace detail {

/// Cache blocks: a panel of B (depth x tile_columns), with short vectors also the rows of A that a tile reads, stays in
/// the first level, a block of A (rows x depth) in the second. None of them changes a bit: what a chain has come to at
/// the end of a block rests in scratch, in panels as those of B, where tiles of a matrix whose rows are a multiple of
/// 4096 bytes apart would hide each other's loads behind their stores.
template <class T>
struct gemm_blocks {
    static constexpr bool wide = simd::registers > 16;
    static constexpr std::size_t depth =
        (wide ? 67584 : 33792) / ((tile_rows + tile_columns<T>)*sizeof(T)) / link_group * link_group;
    static constexpr std::size_t low_depth =
        wide ? depth * 3 / 4 : depth;  ///< leaves more of the first level to columns that are packed
    static constexpr std::size_t rows = round_up(256, tile_rows);
    static constexpr std::size_t columns = 1024;
    static constexpr std::size_t most_rows = 8 * rows;  ///< that share a packed block of B

    static constexpr std::size_t near_a = wide ? 65536 : 16384;  ///< bytes of an operand that is read as it lies
    static constexpr std::size_t near_b = wide ? 98304 : 32768;
    static constexpr std::size_t near_c = wide ? 65536 : 16384;

    static constexpr std::size_t a_size(std::size_t m, std::size_t k) noexcept {
        return whole_lines<T>(round_up(std::min(m, rows), tile_rows) * std::min(k, depth) + simd::width<T>);
    }
    static constexpr std::size_t b_size(std::size_t m, std::size_t n, std::size_t k) noexcept {
        const std::size_t across = round_up(std::min(n, columns), tile_columns<T>);
        return std::min(k, depth) * (m > rows ? across : std::min(across, 2 * tile_columns<T>));
    }
    static constexpr std::size_t c_size(std::size_t m, std::size_t n, std::size_t k) noexcept {
        return k > depth ? std::min(m, most_rows) * round_up(std::min(n, columns), tile_columns<T>) : 0;
    }
    /// What lanes hold: for two tiles while all links fit a cut, else for every tile of a block.
    static constexpr std::size_t lane_size(std::size_t lanes, std::size_t m, std::size_t n, std::size_t k) noexcept {
        const std::size_t tiles = (std::min(m, rows) + tile_rows - 1) / tile_rows *
                                  ((std::min(n, columns) + tile_columns<T> - 1) / tile_columns<T>);
        return held_sums(lanes) * tile_rows * tile_columns<T> * (k > depth ? std::max<std::size_t>(2, tiles) : 2);
    }
    static constexpr std::size_t lane_share(std::size_t lanes, std::size_t m, std::size_t n, std::size_t k) noexcept {
        return whole_lines<T>(a_size(m, k) + b_size(m, n, k) + lane_size(lanes, m, n, k));
    }
    static constexpr std::size_t share(std::size_t m, std::size_t n, std::size_t k) noexcept {
        return whole_lines<T>(a_size(m, k) + b_size(m, n, k) + c_size(m, n, k));
    }
};

/// One thread's part of a product. With lanes, chains end with them and are added over their tree: see lane_tile.hpp.
template <class T>
class block_product {
public:
    block_product(const product<T>& of, T* scratch, std::span<const parallel::block> lanes = {}) noexcept
        : p_{of},
          packed_a_{scratch},
          packed_b_{packed_a_ + blocks::a_size(of.m, of.k)},
          resting_{packed_b_ + blocks::b_size(of.m, of.n, of.k)},
          lanes_{lanes} {}

    void run() noexcept {
        if (!has_lanes() && few_rows_product<T>::takes(p_)) return few_rows_product<T>::run(p_);
        if constexpr (near_product<T>::exists) {
            const bool fits = p_.tb == transpose::no || p_.k <= blocks::depth;
            if (fits && !has_lanes() && near_product<T>::takes(p_)) return near_product<T>::run(p_, packed_b_);
        }
        if (p_.n > 0 && p_.n < width && p_.m >= width) return run_turned();
        // What lanes hold from cut to cut is much: then fewer rows share a packed block of B.
        const std::size_t most_rows = has_lanes() && p_.k > blocks::depth ? blocks::rows : blocks::most_rows;
        for (std::size_t first = 0; first < p_.m; first += most_rows) {
            rows_ = {first, std::min(p_.m, first + most_rows)};
            const std::size_t sections = (p_.n + blocks::columns - 1) / blocks::columns;
            for (std::size_t section = 0; section < sections; ++section)
                multiply_section(parallel::split(p_.n, sections, section, columns));
        }
        if (streamed_) simd::stream_end();
    }

private:
    using blocks = gemm_blocks<T>;
    static constexpr std::size_t width = simd::width<T>;
    static constexpr std::size_t columns = tile_columns<T>;
    static constexpr std::size_t tile_size = tile_rows * columns;

    product<T> p_;
    T* packed_a_;
    T* packed_b_;
    T* resting_;
    parallel::block rows_;
    bool direct_b_ = false;
    bool keep_b_ = false;
    bool first_cut_ = false;
    bool last_cut_ = false;
    bool streamed_ = false;
    column_panels<T> panels_{0};
    parallel::block links_;
    const T* b_ = nullptr;  ///< of the section and cut
    const T* bias_ = nullptr;
    T* c_ = nullptr;
    std::span<const parallel::block> lanes_;
    parallel::block whole_;  ///< the only lane of a cut without lanes
    lane_stretch stretch_;   ///< of the cut

    /// Fewer columns than a vector has: they become the rows of the tiles, rows of C the columns, and what they come to
    /// is transposed.
    void run_turned() noexcept {
        alignas(simd::alignment) T sums[width * columns]{};
        const bool as_rows = p_.ta == transpose::yes;
        const row_tiles tiles(p_.n);
        const column_panels<T> panels(p_.m);
        const std::size_t cuts = std::max<std::size_t>(1, (p_.k + blocks::depth - 1) / blocks::depth);
        panel_walk<T> walk;
        tile_task<T> task;
        task.walk = &walk;
        task.lda = p_.tb == transpose::yes ? p_.ldb : 1;
        task.a_link = p_.tb == transpose::yes ? 1 : p_.ldb;
        task.from_ld = task.to_ld = columns;
        task.held_level = tile_size;
        task.stretch = &stretch_;
        for (std::size_t panel = 0; panel < panels.count; ++panel) {
            const span_of rows = panels[panel];
            const std::size_t second = rows.size > width ? rows.size - width : 0;
            T* const c = p_.c + rows.first * p_.ldc;
            for (std::size_t j = 0; j < p_.n; ++j) {
                if (p_.starts)
                    std::fill_n(sums + j * columns, columns, p_.bias ? p_.bias[j] : T{0});
                else
                    for (std::size_t i = 0; i < rows.size; ++i) sums[j * columns + i] = c[i * p_.ldc + j];
            }
            task.to_second = second;
            stretch_ = {lanes_, {}};
            for (std::size_t cut = 0; cut < cuts; ++cut) {
                const parallel::block links = parallel::split(p_.k, cuts, cut, link_group);
                const parallel::block whole{0, links.size()};
                if (!has_lanes()) stretch_ = {{&whole, 1}, {}};
                const bool resumes = stretch_.begin.row > 0;
                const T* const from =
                    p_.a + (as_rows ? links.first * p_.lda + rows.first : rows.first * p_.lda + links.first);
                task.links = links.size();
                task.b = as_rows ? from : packed_b_;
                task.ldb = as_rows ? p_.lda : columns;
                task.b_second = as_rows || second == 0 ? second : width;
                if (!as_rows) pack_panel(true, whole, rows.size, from, p_.lda, packed_b_);
                for (std::size_t tile = 0; tile < tiles.count; ++tile) {
                    const span_of down = tiles[tile];
                    task.a = p_.b + down.first * task.lda + links.first * task.a_link;
                    task.to = sums + down.first * columns;
                    task.held = resting_ + tile * held_sums(lanes_.size()) * tile_size;
                    task.from = resumes ? task.held + stretch_.begin.held * tile_size : task.to;
                    task.from_second = resumes ? width : second;
                    (task.lda == 1 ? tile_kernels<T> : row_tile_kernels<T>)[down.size - 1](task);
                }
                if (has_lanes()) stretch_.begin = stretch_.after(links.size());
            }
            for (std::size_t i = 0; i < rows.size; i += width) {
                const std::size_t first = std::min(i, rows.size - width);
                alignas(simd::alignment) T turned[width * width];
                transpose_square(sums + first, columns, turned, width);
                for (std::size_t r = 0; r < width; ++r)
                    simd::store_first(c + (first + r) * p_.ldc, simd::load(turned + r * width), p_.n);
            }
        }
    }

    void multiply_section(parallel::block across) noexcept {
        const std::size_t strips = (rows_.size() + blocks::rows - 1) / blocks::rows;
        const bool packs_much = p_.tb == transpose::yes && strips == 1 && p_.k > blocks::depth;
        const std::size_t deep = packs_much ? blocks::low_depth : blocks::depth;
        const std::size_t cuts = std::max<std::size_t>(1, (p_.k + deep - 1) / deep);
        direct_b_ = p_.tb == transpose::no && p_.n >= width &&
                    (p_.m <= tile_rows || p_.k * p_.ldb * sizeof(T) <= blocks::near_b);
        keep_b_ = strips > 1;
        panels_ = column_panels<T>(across.size());
        bias_ = p_.bias ? p_.bias + across.first : nullptr;
        c_ = p_.c + rows_.first * p_.ldc + across.first;
        for (std::size_t cut = 0; cut < cuts; ++cut) {
            links_ = parallel::split(p_.k, cuts, cut, link_group);
            b_ = p_.tb == transpose::no ? p_.b + links_.first * p_.ldb + across.first
                                        : p_.b + across.first * p_.ldb + links_.first;
            first_cut_ = cut == 0;
            last_cut_ = cut + 1 == cuts;
            whole_ = {0, links_.size()};
            if (!has_lanes())
                stretch_ = {{&whole_, 1}, {}};
            else if (first_cut_)
                stretch_ = {lanes_, {}};
            for (std::size_t strip = 0; strip < strips; ++strip)
                multiply_strip(parallel::split(rows_.size(), strips, strip), strip == 0);
            if (has_lanes()) stretch_.begin = stretch_.after(links_.size());
        }
    }

    [[nodiscard]] bool has_lanes() const noexcept { return !lanes_.empty(); }
    [[nodiscard]] T* panel_at(std::size_t panel) const noexcept {
        // Columns are packed when the panel before is done.
        return packed_b_ + (keep_b_ ? panel : p_.tb == transpose::yes ? 0 : panel % 2) * links_.size() * columns;
    }
    [[nodiscard]] const T* source(std::size_t panel) const noexcept {
        return b_ + panels_[panel].first * (p_.tb == transpose::no ? 1 : p_.ldb);
    }

    void pack(std::size_t panel, parallel::block links) const noexcept {
        const bool transposed = p_.tb == transpose::yes;
        if (panels_.narrow())
            pack_narrow(transposed, links, panels_.n, source(panel), p_.ldb, panel_at(panel));
        else
            pack_panel(transposed, links, panels_[panel].size, source(panel), p_.ldb, panel_at(panel));
    }

    /// What has to be packed of a panel, or fetched if its matrix is transposed, while `tiles` tiles are computed. The
    /// beginning of what is packed has been fetched.
    [[nodiscard]] panel_walk<T> walk_over(std::size_t panel, std::size_t tiles) const noexcept {
        panel_walk<T> walk;
        const bool transposed = p_.tb == transpose::yes;
        const std::size_t deep = links_.size();
        const std::size_t groups = tiles * std::max<std::size_t>(1, deep / link_group);
        const std::size_t wide = panels_[panel].size;
        const std::size_t steps =
            std::max<std::size_t>(1, transposed ? (deep + walk.line - 1) / walk.line * wide : deep);
        walk.what = transposed ? beside::columns : beside::rows;
        walk.wait = 1;
        walk.from = source(panel);
        walk.ld = p_.ldb;
        walk.left = deep;
        walk.burst = (steps + groups - 1) / groups;
        walk.period = std::max<std::size_t>(1, groups / steps);
        if (transposed) {
            walk.fetch = walk.from;
            walk.fetch_left = wide;
            return walk;
        }
        const std::size_t ahead = std::min<std::size_t>(deep, 32);
        walk.second = wide > width ? wide - width : 0;
        walk.to = panel_at(panel);
        // The last element of a row of the panel: its beginning may lie in a line that has been fetched before.
        walk.next = source(std::min(panel + 1, panels_.count - 1)) + wide - 1;
        walk.fetch_left = deep - ahead;
        walk.fetch = walk.fetch_left == 0 ? walk.next : walk.from + wide - 1 + ahead * p_.ldb;
        return walk;
    }

    /// Tiles of A as they lie, or packed: the elements of one link side by side.
    [[nodiscard]] tile_task<T> task_of(parallel::block rows, const row_tiles& tiles) const noexcept {
        tile_task<T> task;
        const std::size_t deep = links_.size();
        const std::size_t row = rows_.first + rows.first;
        const bool transposed = p_.ta == transpose::yes;
        task.a = p_.a + (transposed ? links_.first * p_.lda + row : row * p_.lda + links_.first);
        task.lda = transposed ? 1 : p_.lda;
        task.a_link = transposed ? p_.lda : 1;
        const bool near = transposed ? deep * p_.lda * sizeof(T) <= blocks::near_a : p_.lda <= deep + deep / 4;
        if (panels_.count <= (near ? 16 : 3)) return task;
        if (transposed)
            pack_rows(tiles, task.a);
        else
            for (std::size_t tile = 0; tile < tiles.count; ++tile)
                pack_columns(tiles[tile].size, p_.m - row - tiles[tile].first, task.a + tiles[tile].first * p_.lda,
                             packed_a_ + tile * deep * tile_rows);
        task.a = packed_a_;
        task.lda = 1;
        task.a_link = tile_rows;
        return task;
    }

    void pack_rows(const row_tiles& tiles, const T* a) const noexcept {
        constexpr std::size_t run = 8;
        const std::size_t deep = links_.size();
        for (std::size_t first = 0; first < deep; first += run)
            for (std::size_t tile = 0; tile < tiles.count; ++tile) {
                const span_of mine = tiles[tile];
                const T* from = a + first * p_.lda + mine.first;
                T* to = packed_a_ + (tile * deep + first) * tile_rows;
                const std::size_t last = std::min(run, deep - first);
                // As many as a full tile has, at once: what is too much lies in the next row, but for the last one.
                const std::size_t whole = mine.size == tile_rows      ? last
                                          : 2 * mine.size < tile_rows ? 0
                                                                      : std::min(last, deep - first - 1);
                std::size_t q = 0;
                for (; q < whole; ++q, from += p_.lda, to += tile_rows) std::memcpy(to, from, tile_rows * sizeof(T));
                for (; q < last; ++q, from += p_.lda, to += tile_rows) std::copy_n(from, mine.size, to);
            }
    }

    /// One tile of `high` rows, with `below` rows of A from its first row on.
    void pack_columns(std::size_t high, std::size_t below, const T* from, T* to) const noexcept {
        constexpr std::size_t squares = (tile_rows + width - 1) / width;
        const std::size_t deep = links_.size();
        std::size_t p = 0;
        // Whole squares write more than a tile's rows. What is too much is overwritten by what follows it.
        if (below >= squares * width) {
            constexpr std::size_t ahead = 4 * width;
            for (; p + width <= deep; p += width) {
                // A few squares ahead, in this tile or in the next one, whose rows follow.
                const T* const soon = from + (p + ahead < deep ? p + ahead : high * p_.lda + p + ahead - deep);
                for (std::size_t r = 0; r < high; ++r) __builtin_prefetch(soon + r * p_.lda, 0, 3);
                for (std::size_t square = squares; square-- > 0;)
                    transpose_square(from + square * width * p_.lda + p, p_.lda, to + p * tile_rows + square * width,
                                     tile_rows);
            }
        }
        for (; p < deep; ++p)
            for (std::size_t r = 0; r < high; ++r) to[p * tile_rows + r] = from[r * p_.lda + p];
    }

    /// `rows` of rows_.
    void multiply_strip(parallel::block rows, bool first) noexcept {
        static constexpr T zeros[columns]{};
        const row_tiles tiles(rows.size());
        tile_task<T> task = task_of(rows, tiles);
        const bool packed = task.a == packed_a_;
        task.links = links_.size();
        task.stretch = &stretch_;
        if (has_lanes()) {
            // All sums of a tile side by side while one after the other can have the same place.
            const bool whole = links_.size() == p_.k;
            task.held_tile = whole ? 0 : tile_size;
            task.held_level = whole ? tile_size : tiles.count * panels_.count * tile_size;
        }
        // What is far larger than the caches will not be read from them.
        const bool streams = simd::streams(c_, p_.m * p_.n, p_.ldc);
        streamed_ = streamed_ || streams;
        // What is small is in the cache anyhow.
        task.fetches = p_.m * p_.n * sizeof(T) > blocks::near_c || p_.k > blocks::depth;
        const T* const a = task.a;
        const bool packs = first && !direct_b_;
        // Small operands are in the cache anyhow, and small tiles have no time for it.
        const bool gradually = packs && tiles.low >= high_tile && p_.k * p_.n * sizeof(T) > 131072;
        for (std::size_t panel = 0; panel < panels_.count; ++panel) {
            const span_of mine = panels_[panel];
            const std::size_t second = mine.size > width ? mine.size - width : 0;
            if (packs && (panel == 0 || !gradually)) pack(panel, {0, links_.size()});
            task.b = direct_b_ ? source(panel) : panel_at(panel);
            task.ldb = direct_b_ ? p_.ldb : columns;
            task.b_second = direct_b_ || second == 0 ? second : width;
            T* const rest = resting_ + (panel * rows_.size() + rows.first) * columns;
            T* const c = c_ + rows.first * p_.ldc + mine.first;
            const T* const start = bias_ ? bias_ + mine.first : zeros;
            const bool starts = has_lanes() ? stretch_.begin.row == 0 : first_cut_ && p_.starts;
            task.from_ld = starts ? 0 : first_cut_ ? p_.ldc : columns;
            task.from_second = first_cut_ || starts ? second : width;
            task.to_ld = last_cut_ ? p_.ldc : columns;
            task.to_second = last_cut_ ? second : width;
            const bool packs_next = gradually && panel + 1 < panels_.count;
            panel_walk<T> walk;
            if (packs_next) walk = walk_over(panel + 1, tiles.count);
            task.walk = &walk;
            task.streams = streams && last_cut_ && mine.size == columns;
            const auto& kernels = task.lda == 1 ? tile_kernels<T> : row_tile_kernels<T>;
            const auto kernel = [&](std::size_t height) { return kernels[height - 1]; };
            const auto at = [&](std::size_t tile) {
                const std::size_t row = tiles[tile].first;
                task.a = a + (packed ? tile * tile_rows * task.links : row * task.lda);
                task.from = starts ? start : first_cut_ ? c + row * p_.ldc : rest + row * columns;
                task.to = last_cut_ ? c + row * p_.ldc : rest + row * columns;
                if (!has_lanes()) return;
                task.held = resting_ + (panel * tiles.count + tile) * task.held_tile;
                if (!starts) task.from = task.held + stretch_.begin.held * task.held_level;
            };
            if (panels_.narrow()) {
                multiply_narrow(task, tiles, kernel, at);
            } else {
                // The next panel comes from the second level or from beyond it.
                if (!direct_b_ && !packs && panel + 1 < panels_.count) walk.fetch_lines(panel_at(panel + 1));
                const auto several = [&](std::size_t tile, std::size_t count, std::size_t height) {
                    if (count == 0) return;
                    at(tile);
                    task.tiles = count;
                    task.a_tile = packed ? tile_rows * task.links : height * task.lda;
                    task.from_tile = has_lanes() && !starts ? tile_size : height * task.from_ld;
                    kernel(height)(task);
                };
                several(0, tiles.higher, tiles.low + 1);
                if (tiles.higher > 0 && walk.what == beside::fetch) walk = {};
                several(tiles.higher, tiles.count - tiles.higher, tiles.low);
                if (packs_next)
                    pack(panel + 1, {p_.tb == transpose::yes ? 0 : links_.size() - walk.left, links_.size()});
            }
        }
    }

    /// Fewer columns than a vector has: tiles pass through a buffer at the edge of C.
    template <class Kernel, class At>
    void multiply_narrow(tile_task<T>& task, const row_tiles& tiles, Kernel&& kernel, At&& at) const noexcept {
        alignas(simd::alignment) T begin[width]{};
        alignas(simd::alignment) T buffer[tile_rows * width]{};
        if (bias_) std::copy_n(bias_, panels_.n, begin);
        for (std::size_t tile = 0; tile < tiles.count; ++tile) {
            const std::size_t high = tiles[tile].size;
            at(tile);
            T* const c = task.to;
            if (task.from_ld == 0) {
                task.from = begin;
            } else if (first_cut_) {
                for (std::size_t r = 0; r < high; ++r)
                    std::copy_n(task.from + r * p_.ldc, panels_.n, buffer + r * width);
                task.from = buffer;
                task.from_ld = width;
            }
            if (last_cut_) {
                task.to = buffer;
                task.to_ld = width;
            }
            kernel(high)(task);
            if (last_cut_)
                for (std::size_t r = 0; r < high; ++r) std::copy_n(buffer + r * width, panels_.n, c + r * p_.ldc);
        }
    }
};

}  // namespace detail

}  // namespace lockstep::kernels
