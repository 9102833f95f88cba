// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Softmax followed by cross entropy, in one: models Loss.
// Tested by tests/unit/loss/loss.cpp.

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/normalisation/softmax.hpp"
#include "lockstep/loss/concept.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// Loss of a row with label c: log(sum_i exp(y_i)) - y_c, so dy_i = scale (exp(y_i) / sum_j exp(y_j) - [i = c]). The
/// largest output is taken off first: nothing overflows. With label smoothing s the target is (1 - s) [i = c] + s /
/// classes instead of [i = c] (Szegedy et al. 2016), and the loss -sum_i target_i log(softmax(y)_i). A NaN or +infinity
/// in a row, or a label outside 0 .. classes - 1, makes its loss and its derivative NaN.
struct softmax_cross_entropy {
    static constexpr std::string_view name = "softmax_cross_entropy";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;
    static constexpr std::size_t least_outputs = 2;

    double smoothing = 0;

    /// Empty without smoothing.
    [[nodiscard]] std::string settings() const {
        return smoothing == 0 ? std::string{} : core::text("smoothing=", smoothing);
    }
    /// Throws core::error unless 0 <= smoothing < 1.
    void check() const {
        if (!(smoothing >= 0 && smoothing < 1))
            core::fail(core::text("softmax_cross_entropy has smoothing = ", smoothing, ", outside [0, 1)"),
                       "take the part of the target that is spread over all classes, such as 0.1, or 0 for none");
    }

    template <class T, tensor::Shape Output>
    double operator()(tensor::batch<const T, Output> y, tensor::targets<label<Output>, T> target,
                      tensor::batch<T, Output> dy, T scale) const noexcept {
        return kernels::softmax_cross_entropy_rows(y.rows, Output::size, y.data, target.data(), scale, dy.data,
                                                   parallel::team{}, smoothing);
    }
};

static_assert(Loss<softmax_cross_entropy>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::softmax_cross_entropy;
}  // namespace lockstep
