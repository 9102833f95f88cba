// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Softmax cross entropy with a weight for each class, for classes of unequal frequency: models Loss.
// Tested by tests/unit/loss/loss.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/normalisation/softmax.hpp"
#include "lockstep/loss/concept.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// Loss of a row with label c: weights[c] times that of softmax_cross_entropy; so is its derivative. The mean is taken
/// over rows, so a minibatch has sum_r weights[c_r] loss_r / rows, whatever labels the other rows have. PyTorch's
/// `weight` divides by sum_r weights[c_r] instead: take weights with a mean of 1 over all samples for losses of that
/// size. A weight of 0 leaves the samples of a class out of the loss, unless theirs is infinite; they count as rows.
/// With smoothing the weight of the label multiplies the whole row.
/// `weighted_softmax_cross_entropy{.weights = {1.0, 4.0, 2.5}}`, or a std::array; other numbers of outputs do not
/// compile. A row at a time: for few classes slower than softmax_cross_entropy, which takes several rows at once.
template <std::size_t Classes>
struct weighted_softmax_cross_entropy {
    static constexpr std::string_view name = "weighted_softmax_cross_entropy";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;
    static constexpr std::size_t least_outputs = 2;
    static constexpr std::size_t exact_outputs = Classes;

    std::array<double, Classes> weights;
    double smoothing = 0;

    [[nodiscard]] std::string settings() const {
        std::string out = "weights=";
        for (std::size_t i = 0; i < Classes; ++i) out += core::text(i == 0 ? "" : ",", weights[i]);
        return out + core::text(" smoothing=", smoothing);
    }
    /// Throws core::error unless all weights are finite and none is negative, one is above 0, and 0 <= smoothing < 1.
    void check() const {
        for (std::size_t i = 0; i < Classes; ++i)
            if (!(weights[i] >= 0 && std::isfinite(weights[i])))
                core::fail(core::text("weighted_softmax_cross_entropy has weights[", i, "] = ", weights[i],
                                      ", negative or not finite"),
                           "take a number such as samples / (classes x samples of the class), or 0 to leave it out");
        if (std::ranges::all_of(weights, [](double one) { return one == 0; }))
            core::fail(core::text("weighted_softmax_cross_entropy has ", Classes, " weights, and all of them are 0"),
                       "give the classes that are to be told apart a weight above 0");
        if (!(smoothing >= 0 && smoothing < 1))
            core::fail(core::text("weighted_softmax_cross_entropy has smoothing = ", smoothing, ", outside [0, 1)"),
                       "take the part of the target that is spread over all classes, such as 0.1, or 0 for none");
    }

    template <class T, tensor::Shape Output>
    double operator()(tensor::batch<const T, Output> y, tensor::targets<label<Output>, T> target,
                      tensor::batch<T, Output> dy, T scale) const noexcept {
        double sum = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            const auto number = static_cast<std::size_t>(target[row]);
            // The kernel makes a row with an unknown label NaN.
            const double weight = number < Classes ? weights[number] : 1;
            sum += weight * kernels::softmax_cross_entropy_rows(
                                1, Output::size, y.data + row * Output::size, target.data() + row,
                                static_cast<T>(static_cast<double>(scale) * weight),
                                dy.data ? dy.data + row * Output::size : nullptr, parallel::team{}, smoothing);
        }
        return sum;
    }
};

/// As many classes as numbers in braces, or as the array has.
template <std::size_t Classes>
weighted_softmax_cross_entropy(const double (&)[Classes], double = 0) -> weighted_softmax_cross_entropy<Classes>;
template <std::size_t Classes>
weighted_softmax_cross_entropy(const std::array<double, Classes>&, double = 0)
    -> weighted_softmax_cross_entropy<Classes>;

static_assert(Loss<weighted_softmax_cross_entropy<2>>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::weighted_softmax_cross_entropy;
}  // namespace lockstep
