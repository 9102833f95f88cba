// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random translation: a window of the picture's own size out of the padded picture; a model of Augmentation.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

/// What surrounds a picture. `zero`: the mean colour, where samples are normalised. `reflect`: the picture, mirrored in
/// its outermost pixels.
enum class border { zero, reflect };

/// Pads the picture by `padding` pixels on each side and cuts out a window of the old size, each of the (2 padding +
/// 1)^2 places alike: y[r][c] = x[r + down][c + right] with down and right in -padding .. padding. Rows are moved as a
/// whole. He, Zhang, Ren, Sun 2016 (CIFAR-10: padding 4).
struct pad_crop {
    std::size_t padding = 4;
    data::border border = data::border::zero;

    static constexpr std::string_view name = "pad_crop";
    [[nodiscard]] std::string settings() const {
        return core::text("padding=", padding, " border=", border == data::border::zero ? "zero" : "reflect");
    }
    void check(std::size_t rows, std::size_t columns) const {
        const std::size_t least = std::min(rows, columns),
                          most = border == data::border::zero ? least - 1 : (least - 1) / 2;
        if (padding > most)
            core::fail(
                core::text("pad_crop{.padding = ", padding, "} shifts pictures of ", rows, "x", columns, " too far"),
                core::text("use a padding of at most ", most));
    }

    template <class T>
    void apply(const picture<T>& of, const draws& random) const noexcept {
        const auto places = static_cast<std::uint32_t>(2 * padding + 1);
        const auto margin = static_cast<std::ptrdiff_t>(padding);
        shift(of, static_cast<std::ptrdiff_t>(random.below(places, 0)) - margin,
              static_cast<std::ptrdiff_t>(random.below(places, 1)) - margin);
    }

    /// y[r][c] = x[r + down][c + right], in place.
    template <class T>
    void shift(const picture<T>& of, std::ptrdiff_t down, std::ptrdiff_t right) const noexcept {
        static_assert(std::is_trivially_copyable_v<T>);
        const std::size_t lost_rows = magnitude(down), lost = magnitude(right) * of.channels,
                          kept = of.row_size() - lost;
        const std::size_t from = right > 0 ? lost : 0, to = right > 0 ? 0 : lost, gap = right > 0 ? kept : 0;
        const auto move_row = [&](std::size_t target, std::size_t source) {
            std::memmove(of.row(target) + to, of.row(source) + from, kept * sizeof(T));
            if (border == data::border::zero)
                std::fill_n(of.row(target) + gap, lost, T{0});
            else
                mirror_columns(of, target, right);
        };
        // A row is read before it is written: upwards or downwards.
        const std::size_t rows = of.rows - lost_rows;
        if (down >= 0)
            for (std::size_t row = 0; row < rows; ++row) move_row(row, row + lost_rows);
        else
            for (std::size_t row = rows; row-- > 0;) move_row(row + lost_rows, row);
        for (std::size_t i = 0; i < lost_rows; ++i) {
            const std::size_t target = down > 0 ? rows + i : lost_rows - 1 - i;
            if (border == data::border::zero)
                std::fill_n(of.row(target), of.row_size(), T{0});
            else
                std::copy_n(of.row(down > 0 ? rows - 2 - i : lost_rows + 1 + i), of.row_size(), of.row(target));
        }
    }

private:
    static constexpr std::size_t magnitude(std::ptrdiff_t of) noexcept {
        return static_cast<std::size_t>(of < 0 ? -of : of);
    }

    /// The mirror is the outermost pixel that is left, so its image lies in the moved row itself.
    template <class T>
    static void mirror_columns(const picture<T>& of, std::size_t row, std::ptrdiff_t right) noexcept {
        const std::size_t lost = magnitude(right), kept = of.columns - lost;
        for (std::size_t i = 0; i < lost; ++i)
            std::copy_n(of.row(row) + (right > 0 ? kept - 2 - i : lost + 1 + i) * of.channels, of.channels,
                        of.row(row) + (right > 0 ? kept + i : lost - 1 - i) * of.channels);
    }
};

}  // namespace lockstep::data
