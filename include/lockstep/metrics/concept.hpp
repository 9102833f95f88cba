// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a metric must offer: a sum over rows that is divided by the number of rows once all of them have been seen.
// Tested by tests/unit/metrics/accuracy.cpp.

#include <concepts>
#include <string_view>

#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// `metric(y, target)` returns the sum over the rows of y; the value of the metric is the sum over all rows divided by
/// their number. A count is a whole number, so it does not depend on how rows were dealt out. Optional: `settings()`,
/// which ranks compare, and `check()`, which throws core::error on settings that make no sense.
template <class M, class T = float, class Output = tensor::shape<2>>
concept Metric = std::copy_constructible<M> && tensor::Label<typename M::template label<Output>> &&
    requires(const M& metric, tensor::batch<const T, Output> y,
             tensor::targets<typename M::template label<Output>, T> target) {
    { M::name } -> std::convertible_to<std::string_view>;
    { metric(y, target) } -> std::convertible_to<double>;
    requires noexcept(metric(y, target));
};

}  // namespace lockstep::metrics
