// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Softmax followed by cross entropy, in one: models Loss.

#include <string>
#include <string_view>

#include "lockstep/kernels/softmax.hpp"
#include "lockstep/loss/concept.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::loss {

/// Loss of a row with label c: log(sum_i exp(y_i)) - y_c, so dy_i = scale (exp(y_i) / sum_j exp(y_j) - [i = c]). The largest output is taken
/// off first: nothing overflows. A NaN or +infinity in a row, or a label outside 0 .. classes - 1, makes its loss and its derivative NaN.
struct softmax_cross_entropy {
    static constexpr std::string_view name = "softmax_cross_entropy";

    template <tensor::Shape Output>
    using label = tensor::classes<Output::size>;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class T, tensor::Shape Output>
    double operator()(tensor::batch<const T, Output> y, tensor::targets<label<Output>, T> target, tensor::batch<T, Output> dy,
                      T scale) const noexcept {
        return kernels::softmax_cross_entropy_rows(y.rows, Output::size, y.data, target.data(), scale, dy.data, parallel::team{});
    }
};

static_assert(Loss<softmax_cross_entropy>);

}  // namespace lockstep::loss

namespace lockstep {
using loss::softmax_cross_entropy;
}  // namespace lockstep
