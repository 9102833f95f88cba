// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sigmoid followed by binary cross entropy, in one: models Loss.
// Tested by tests/unit/loss/loss.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "lockstep/loss/concept.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/exp.hpp"
#include "lockstep/simd/log.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// Loss of a row: the mean over its F numbers of -t log(p) - (1 - t) log(1 - p), where p = 1 / (1 + exp(-y)): outputs
/// are logits, no sigmoid stands before this loss. So dy = scale (p - t) / F. Targets have the shape of the output and
/// lie in [0, 1]: a trainer refuses others; called alone, this gives NaN for them, as for a NaN in the output.
/// Computed as max(y, 0) - t y + log(1 + exp(-|y|)), in double: nothing overflows, and nothing cancels but what two
/// terms near each other do. 3 F numbers moved for each row; an exponential, a logarithm and two divisions for each.
struct binary_cross_entropy {
    static constexpr std::string_view name = "binary_cross_entropy";
    static constexpr std::array<double, 2> target_range{0, 1};

    template <tensor::Shape Output>
    using label = Output;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class T, tensor::Shape Output>
    double operator()(tensor::batch<const T, Output> y, tensor::targets<Output, T> target, tensor::batch<T, Output> dy,
                      T scale) const noexcept {
        const double factor = static_cast<double>(scale) / static_cast<double>(Output::size);
        double sum = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            double losses = 0;
            for (std::size_t first = 0; first < Output::size; first += block) {
                const std::size_t count = std::min(block, Output::size - first), at = row * Output::size + first;
                const part computed{y.data + at, target.data() + at, count};
                for (std::size_t i = 0; i < count; ++i) losses += computed.loss[i];
                if (dy.data == nullptr) continue;
                for (std::size_t i = 0; i < count; ++i)
                    dy.data[at + i] = static_cast<T>(factor * computed.difference[i]);
            }
            sum += losses / static_cast<double>(Output::size);
        }
        return sum;
    }

private:
    static constexpr std::size_t block = 64;

    /// Of up to `block` numbers: their losses and p - t. Each depends on its own y and t only, in every bit.
    struct part {
        std::array<double, block> loss;
        std::array<double, block> difference;

        template <class T>
        part(const T* y, const T* target, std::size_t count) noexcept {
            using vector = simd::batch<double>;
            std::copy_n(y, count, loss.data());
            std::copy_n(target, count, difference.data());
            const vector zero(0.0), one(1.0), nan(std::numeric_limits<double>::quiet_NaN());
            simd::map(
                count,
                [&](vector& of, vector& t) {
                    const vector logit = of;
                    const auto is_positive = logit > zero;
                    const vector power = simd::exp_below_zero(select(is_positive, -logit, logit)), total = one + power;
                    // The sum has lost digits of a small power: what was lost is added again.
                    const vector logarithm = simd::log_above_one(total) + (power - (total - one)) / total;
                    const vector wanted = select(t >= zero && t <= one, t, nan);
                    of = (select(is_positive, logit, zero) - wanted * logit) + logarithm;
                    t = select(is_positive, one, power) / total - wanted;
                },
                loss.data(), difference.data());
        }
    };
};

static_assert(Loss<binary_cross_entropy>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::binary_cross_entropy;
}  // namespace lockstep
