// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A random square of a picture is set to zero; a model of Augmentation.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

/// Zeros a square of `size` x `size` pixels around a pixel, each of them alike; what lies outside the picture is cut
/// off. Zero is the mean colour, where samples are normalised. DeVries, Taylor 2017 (with flips and shifts: 16 for
/// CIFAR-10, 8 for CIFAR-100).
struct cutout {
    std::size_t size = 8;

    static constexpr std::string_view name = "cutout";
    [[nodiscard]] std::string settings() const { return core::text("size=", size); }
    void check(std::size_t rows, std::size_t columns) const {
        if (size == 0 || size > std::min(rows, columns))
            core::fail(core::text("cutout{.size = ", size, "} on pictures of ", rows, "x", columns),
                       core::text("choose a size from 1 to ", std::min(rows, columns)));
    }

    template <class T>
    void apply(const picture<T>& of, const draws& random) const noexcept {
        clear(of, random.below(static_cast<std::uint32_t>(of.rows), 0),
              random.below(static_cast<std::uint32_t>(of.columns), 1));
    }

    /// The square around the pixel (row, column): rows row - size / 2 .. row - size / 2 + size - 1, and columns alike.
    template <class T>
    void clear(const picture<T>& of, std::size_t row, std::size_t column) const noexcept {
        const auto first = [&](std::size_t middle) { return middle < size / 2 ? 0 : middle - size / 2; };
        const auto last = [&](std::size_t middle, std::size_t extent) {
            return std::min(middle + size - size / 2, extent);
        };
        const std::size_t left = first(column), right = last(column, of.columns);
        for (std::size_t r = first(row); r < last(row, of.rows); ++r)
            std::fill_n(of.row(r) + left * of.channels, (right - left) * of.channels, T{0});
    }
};

}  // namespace lockstep::data
