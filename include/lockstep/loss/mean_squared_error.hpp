// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Mean squared error for regression: models Loss.
// Tested by tests/unit/loss/loss.cpp.

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/loss/concept.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// Loss of a row: the mean of (y - t)^2 over its F numbers, so dy = scale 2 (y - t) / F. Targets have the shape of the
/// output. Numbers that are not finite show in the sum. 3 F numbers moved for each row.
struct mean_squared_error {
    static constexpr std::string_view name = "mean_squared_error";

    template <tensor::Shape Output>
    using label = Output;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class T, tensor::Shape Output>
    double operator()(tensor::batch<const T, Output> y, tensor::targets<Output, T> target, tensor::batch<T, Output> dy,
                      T scale) const noexcept {
        double sum = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            const T* predicted = y.data + row * Output::size;
            const T* wanted = target.data() + row * Output::size;
            double squares = 0;
            for (std::size_t i = 0; i < Output::size; ++i) {
                const double difference = static_cast<double>(predicted[i]) - static_cast<double>(wanted[i]);
                squares += difference * difference;
            }
            sum += squares / static_cast<double>(Output::size);
            if (dy.data != nullptr) {
                const simd::batch<T> factor(
                    static_cast<T>(2 * static_cast<double>(scale) / static_cast<double>(Output::size)));
                simd::map(
                    Output::size, [&](auto& out, const auto& is, const auto& should) { out = factor * (is - should); },
                    dy.data + row * Output::size, predicted, wanted);
            }
        }
        return sum;
    }
};

static_assert(Loss<mean_squared_error>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::mean_squared_error;
}  // namespace lockstep
