// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Huber loss for regression with outliers: models Loss.
// Tested by tests/unit/loss/loss.cpp.

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/loss/concept.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// Loss of a row: the mean over its F numbers of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with
/// d = y - t: Huber (Annals of Mathematical Statistics, 1964). So dy = scale max(-delta, min(d, delta)) / F. Targets
/// have the shape of the output. Numbers that are not finite show in the sum. 3 F numbers moved for each row.
struct huber {
    double delta = 1;

    static constexpr std::string_view name = "huber";

    template <tensor::Shape Output>
    using label = Output;

    [[nodiscard]] std::string settings() const { return core::text("delta=", delta); }
    /// Throws core::error unless delta is finite, and positive as a float too.
    void check() const {
        if (!(delta >= 1e-37 && std::isfinite(delta)))
            core::fail(core::text("huber has delta = ", delta, ", below 1e-37 or not finite"),
                       "take the distance from which on errors count as outliers, such as 1");
    }

    template <class T, tensor::Shape Output>
    double operator()(tensor::batch<const T, Output> y, tensor::targets<Output, T> target, tensor::batch<T, Output> dy,
                      T scale) const noexcept {
        double sum = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            const T* predicted = y.data + row * Output::size;
            const T* wanted = target.data() + row * Output::size;
            double losses = 0;
            for (std::size_t i = 0; i < Output::size; ++i) {
                const double distance = std::abs(static_cast<double>(predicted[i]) - static_cast<double>(wanted[i]));
                losses += distance > delta ? delta * (distance - delta / 2) : distance * distance / 2;
            }
            sum += losses / static_cast<double>(Output::size);
            if (dy.data != nullptr) {
                using vector = simd::batch<T>;
                const vector factor(static_cast<T>(static_cast<double>(scale) / static_cast<double>(Output::size)));
                const vector most(static_cast<T>(delta));
                // A comparison with NaN is false, so a NaN stays.
                simd::map(
                    Output::size,
                    [&](auto& out, const auto& is, const auto& should) {
                        const vector difference = is - should;
                        const vector above = select(difference > most, most, difference);
                        out = factor * select(difference < -most, -most, above);
                    },
                    dy.data + row * Output::size, predicted, wanted);
            }
        }
        return sum;
    }
};

static_assert(Loss<huber>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::huber;
}  // namespace lockstep
