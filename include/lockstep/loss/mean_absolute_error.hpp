// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Mean absolute error for regression: models Loss.
// Tested by tests/unit/loss/loss.cpp.

#include <cmath>
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

/// Loss of a row: the mean of |y - t| over its F numbers, so dy = scale sign(y - t) / F, and 0 where y = t. Targets
/// have the shape of the output. Numbers that are not finite show in the sum. 3 F numbers moved for each row.
struct mean_absolute_error {
    static constexpr std::string_view name = "mean_absolute_error";

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
            double distances = 0;
            for (std::size_t i = 0; i < Output::size; ++i)
                distances += std::abs(static_cast<double>(predicted[i]) - static_cast<double>(wanted[i]));
            sum += distances / static_cast<double>(Output::size);
            if (dy.data != nullptr) {
                using vector = simd::batch<T>;
                const vector up(static_cast<T>(static_cast<double>(scale) / static_cast<double>(Output::size)));
                const vector zero(T{0});
                // What is neither above nor below 0 is 0 or NaN, and stays.
                simd::map(
                    Output::size,
                    [&](auto& out, const auto& is, const auto& should) {
                        const vector difference = is - should;
                        out = select(difference > zero, up, select(difference < zero, -up, difference));
                    },
                    dy.data + row * Output::size, predicted, wanted);
            }
        }
        return sum;
    }
};

static_assert(Loss<mean_absolute_error>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::mean_absolute_error;
}  // namespace lockstep
