// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a metric must offer: sums over rows, and what is made of them once all rows have been seen.
// Tested by tests/unit/metrics/accuracy.cpp.

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// Some rows of one lane, for a metric with several sums.
template <class T, class Output, class Label>
struct sums_pass {
    tensor::batch<const T, Output> y;  ///< rows x the output shape
    tensor::targets<Label, T> target;  ///< their labels
    tensor::targets<Label, T> first;  ///< of sample 0 of the data set, on every rank: a shift against cancellation
    std::span<double> sums;           ///< sum_count<Output> of them, to be added to; zero before the first rows
};

/// `metric(y, target)` returns the sum over the rows of y; the value of the metric is the sum over all rows divided by
/// their number.
template <class M, class T = float, class Output = tensor::shape<2>>
concept MeanMetric = requires(const M& metric, tensor::batch<const T, Output> y,
                              tensor::targets<typename M::template label<Output>, T> target) {
    { metric(y, target) } -> std::convertible_to<double>;
    requires noexcept(metric(y, target));
};

/// `result(sums, rows)` makes a value of a type of its own of the sums over all rows; it may throw core::error where
/// that is not defined.
template <class M>
concept HasResult = requires(const M& metric, std::span<const double> sums, std::size_t rows) {
    { metric.result(sums, rows) } -> std::default_initializable;
};

/// `sum_count<Output>` sums, to which `add(pass)` adds those of some rows, and a result.
template <class M, class T = float, class Output = tensor::shape<2>>
concept SumsMetric = HasResult<M> &&
    requires(const M& metric, const sums_pass<T, Output, typename M::template label<Output>>& pass) {
    requires M::template sum_count<Output> > 0;
    metric.add(pass);
    requires noexcept(metric.add(pass));
};

/// Sums are added over the rows of a lane, then over lanes along their tree: equal bits for any number of ranks.
/// Optional: `settings()`, which ranks compare; `check()` and `check_outputs(n)`, which throw core::error on settings
/// that make no sense, or not for a network with n outputs.
template <class M, class T = float, class Output = tensor::shape<2>>
concept Metric = std::copy_constructible<M> && tensor::Label<typename M::template label<Output>> &&
    std::convertible_to<decltype(M::name), std::string_view> &&(MeanMetric<M, T, Output> != SumsMetric<M, T, Output>);

namespace detail {
template <class M>
struct value {
    using type = double;
};
template <HasResult M>
struct value<M> {
    using type = std::remove_cvref_t<decltype(std::declval<const M&>().result(std::declval<std::span<const double>>(),
                                                                              std::size_t{}))>;
};
}  // namespace detail
/// What a metric measures: a double, or what result() returns.
template <class M>
using value_of = typename detail::value<M>::type;

/// How many sums a metric has for a network with this output.
template <class M, class Output>
inline constexpr std::size_t sums_of = 1;
template <HasResult M, class Output>
inline constexpr std::size_t sums_of<M, Output> = M::template sum_count<Output>;

/// Whether the value is one number, or stands for one. It then has a name in a report::evaluation.
template <class M>
inline constexpr bool is_one_number = std::is_convertible_v<value_of<M>, double>;

}  // namespace lockstep::metrics
