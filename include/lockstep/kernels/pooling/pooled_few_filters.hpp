// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A convolution with few filters and the maximum of windows of 2 x 2, by planes: the maximum is taken before filters
// lie side by side.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/kernels/convolution/few_filters_forward.hpp"
#include "lockstep/simd/bytes.hpp"

namespace lockstep::kernels::detail {

/// few_filters_tiles of two rows at a time. The window of planes is reduced while vectors still run along columns, so a
/// quarter is turned.
template <class T>
struct pooled_few_filters : few_filters_tiles<T> {
    using tiles = few_filters_tiles<T>;
    using tiles::columns;
    using tiles::g;
    static constexpr std::size_t width = simd::width<T>;
    using vector = typename vector_of<T, width>::type;

    /// Columns of a plane of maxima.
    [[nodiscard]] constexpr std::size_t pitch() const noexcept { return tiles::out_pitch() / 2; }
    [[nodiscard]] constexpr std::size_t plane_rows() const noexcept { return round_up(g.filters, width); }
    [[nodiscard]] constexpr std::size_t maxima_size() const noexcept { return whole_lines<T>(plane_rows() * pitch()); }
    [[nodiscard]] constexpr std::size_t pixels_size() const noexcept {
        return whole_lines<T>(pitch() * g.filters + 2 * width);
    }
    [[nodiscard]] constexpr std::size_t share() const noexcept {
        return tiles::in_size(g.out_rows()) + 2 * whole_lines<T>(tiles::turned_size()) + 2 * maxima_size() +
               pixels_size();
    }
    [[nodiscard]] constexpr std::size_t scratch(std::size_t threads) const noexcept {
        return whole_lines<T>(tiles::weights()) + threads * share();
    }

    template <int First>
    [[nodiscard]] static vector every_second(const T* from) noexcept {
        vector left, right;
        std::memcpy(&left, from, sizeof(left));
        std::memcpy(&right, from + width, sizeof(right));
        return [&]<int... I>(std::integer_sequence<int, I...>) {
            return __builtin_shufflevector(left, right, (2 * I + First)...);
        }
        (std::make_integer_sequence<int, static_cast<int>(width)>{});
    }

    /// The maxima of two rows of `columns` numbers and their positions: the first of equals wins, and a NaN, as in
    /// max_pool_forward.
    static void reduce(const T* above, const T* below, T* maxima, T* winners) noexcept {
        vector best = every_second<0>(above);
        vector index{};
        const auto compare = [&](const vector& value, T number) LOCKSTEP_FLATTEN {
            const auto stays = (value <= best) | (best != best);
            best = stays ? best : value;
            index = stays ? index : vector{} + number;
        };
        compare(every_second<1>(above), T{1});
        compare(every_second<0>(below), T{2});
        compare(every_second<1>(below), T{3});
        std::memcpy(maxima, &best, sizeof(best));
        std::memcpy(winners, &index, sizeof(index));
    }

    /// Planes to pixels.
    static void turn(std::size_t filters, std::size_t pitch, const T* planes, T* pixels) noexcept {
        for (std::size_t pixel = 0; pixel < pitch; pixel += width)
            for (std::size_t filter = 0; filter < filters; filter += width) {
                // The last square overlaps the one before it; the only one writes after the filters, and the next pixel
                // covers it.
                const std::size_t at = filters < width ? 0 : std::min(filter, filters - width);
                transpose_square(planes + at * pitch + pixel, pitch, pixels + pixel * filters + at, filters);
            }
    }

    /// The filters of one tile of columns of one row.
    void tile_of(const T* lines, const T* weight, const T* bias, T* to) const noexcept {
        const std::size_t blocks = tiles::filter_blocks();
        for (std::size_t part = 0; part < blocks; ++part) {
            const parallel::block mine = parallel::split(g.filters, blocks, part);
            with_even_height(mine.size(), [&](auto high) {
                tiles::template run<high>(lines, weight, bias ? bias + mine.first : nullptr, mine.size(),
                                          to + mine.first * columns);
                weight += high * tiles::links();
            });
        }
    }

    /// One sample.
    void sample(const T* x, const T* packed, const T* bias, T* y, std::uint8_t* which, T* scratch) const noexcept {
        T* const above = scratch + tiles::in_size(g.out_rows());
        T* const below = above + whole_lines<T>(tiles::turned_size());
        T* const maxima = below + whole_lines<T>(tiles::turned_size());
        T* const winners = maxima + maxima_size();
        T* const pixels = winners + maxima_size();
        // To the compiler a vector that is stored may lie over the geometry.
        const std::size_t filters = g.filters, high = g.out_rows(), wide = g.out_columns(), apart = pitch(),
                          line = tiles::in_row();
        const std::size_t count = wide / 2 * filters;
        tiles::copy_in(x, {0, high / 2 * 2}, scratch);
        for (std::size_t row = 0; row + 1 < high; row += 2, y += count) {
            const T* const lines = scratch + row * line;
            for (std::size_t first = 0; first < wide; first += columns) {
                tile_of(lines + first, packed, bias, above);
                tile_of(lines + line + first, packed, bias, below);
                const std::size_t to = first / 2;
                for (std::size_t filter = 0; filter < filters; ++filter)
                    reduce(above + filter * columns, below + filter * columns, maxima + filter * apart + to,
                           winners + filter * apart + to);
            }
            turn(filters, apart, maxima, pixels);
            std::copy_n(pixels, count, y);
            if (!which) continue;
            turn(filters, apart, winners, pixels);
            std::size_t at = 0;
            for (; at + width <= count; at += width) simd::store_bytes<T>(which + at, simd::load(pixels + at));
            for (; at < count; ++at) which[at] = static_cast<std::uint8_t>(pixels[at]);
            which += count;
        }
    }
};

/// Samples are split among the threads.
template <class T>
void pooled_few_filters_forward(const convolution& g, std::size_t batch, const T* x, const T* w, const T* bias, T* y,
                                std::uint8_t* which, resources<T> use) noexcept {
    const pooled_few_filters<T> all{{{g}}};
    T* const packed = use.scratch.data();
    all.pack_weights(w, packed);
    const std::size_t size = g.out_rows() / 2 * (g.out_columns() / 2) * g.filters;
    parallel::on_each_thread(use.team, [&](std::size_t thread) {
        const parallel::block mine = parallel::split(batch, static_cast<std::size_t>(use.team.threads), thread);
        T* const share = packed + whole_lines<T>(all.weights()) + thread * all.share();
        for (std::size_t sample = mine.first; sample < mine.last; ++sample)
            all.sample(x + sample * g.in_size(), packed, bias, y + sample * size,
                       which ? which + sample * size : nullptr, share);
    });
}

}  // namespace lockstep::kernels::detail
