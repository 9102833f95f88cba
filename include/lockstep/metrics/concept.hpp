// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a metric must offer: sums or maxima over rows, and what is made of them once all rows have been seen.
// Tested by tests/unit/metrics/accuracy.cpp.

#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/member.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::metrics {

/// Takes `value` into a maximum. In any order the bits are the same: a NaN stays, as the same one, and 0 is above -0.
inline void take_largest(double& maximum, double value) noexcept {
    if (std::isnan(value))
        maximum = std::numeric_limits<double>::quiet_NaN();
    else if (value > maximum || (value == maximum && !std::signbit(value)))
        maximum = value;
}

/// Some rows of one lane, for a metric with several sums or maxima.
template <class T, class Output, class Label>
struct sums_pass {
    tensor::batch<const T, Output> y;  ///< rows x the output shape
    tensor::targets<Label, T> target;  ///< their labels
    tensor::targets<Label, T> first;   ///< of sample 0 of the data set, on every rank: a shift against cancellation
    std::span<double> sums;            ///< sum_count<Output> of them, to be added to; zero before the first rows
    std::span<double> maxima{};        ///< max_count<Output> of them, by take_largest(); minus infinity at first
};

/// `result(sums, maxima, rows)`, where a metric has maxima, makes a value of a type of its own of the sums and the
/// maxima over all rows; it may throw core::error where that is not defined.
template <class M>
concept HasMaxima = requires(const M& metric, std::span<const double> numbers, std::size_t rows) {
    { metric.result(numbers, numbers, rows) } -> std::default_initializable;
};
/// `result(sums, rows)`, where it has sums alone, does the same.
template <class M>
concept HasResult = HasMaxima<M> || requires(const M& metric, std::span<const double> sums, std::size_t rows) {
    { metric.result(sums, rows) } -> std::default_initializable;
};

/// How many sums a metric has for a network with this output: `sum_count<Output>`; one, its value, where it has no
/// result.
template <class M, class Output>
inline constexpr std::size_t sums_of = HasResult<M> ? 0 : 1;
template <HasResult M, class Output>
    requires requires { M::template sum_count<Output>; }
inline constexpr std::size_t sums_of<M, Output> = M::template sum_count<Output>;
/// How many maxima: `max_count<Output>`, or none.
template <class M, class Output>
inline constexpr std::size_t maxima_of = 0;
template <class M, class Output>
    requires requires { M::template max_count<Output>; }
inline constexpr std::size_t maxima_of<M, Output> = M::template max_count<Output>;
/// Whether its result takes the maxima that it has.
template <class M, class Output>
inline constexpr bool keeps_maxima = HasMaxima<M> || maxima_of<M, Output> == 0;
/// Whether it has something for add() to take rows into, and a result that takes all of it.
template <class M, class Output>
inline constexpr bool has_sums = HasResult<M>&& keeps_maxima<M, Output> &&
                                 (sums_of<M, Output> > 0 || maxima_of<M, Output> > 0);

/// `metric(y, target)` returns the sum over the rows of y; the value of the metric is the sum over all rows divided by
/// their number.
template <class M, class T = float, class Output = tensor::shape<2>>
concept MeanMetric = keeps_maxima<M, Output> &&
    requires(const M& metric, tensor::batch<const T, Output> y,
             tensor::targets<typename M::template label<Output>, T> target) {
    { metric(y, target) } -> std::convertible_to<double>;
    requires noexcept(metric(y, target));
};

/// Sums or maxima or both, into which `add(pass)` takes those of some rows, and a result.
template <class M, class T = float, class Output = tensor::shape<2>>
concept SumsMetric = has_sums<M, Output> &&
    requires(const M& metric, const sums_pass<T, Output, typename M::template label<Output>>& pass) {
    metric.add(pass);
    requires noexcept(metric.add(pass));
};

/// Sums are added over the rows of a lane, then over lanes along their tree, and maxima have no order: equal bits for
/// any number of ranks.
/// Optional: `settings()`, which ranks compare; `check()` and `check_outputs(n)`, which throw core::error on settings
/// that make no sense, or not for a network with n outputs.
template <class M, class T = float, class Output = tensor::shape<2>>
concept Metric =
    std::copy_constructible<M> && !core::name_is_of_objects<M> && tensor::Label<typename M::template label<Output>> &&
    std::convertible_to<decltype(M::name), std::string_view> && (MeanMetric<M, T, Output> != SumsMetric<M, T, Output>);

namespace detail {
template <class M>
struct value {
    using type = double;
};
template <HasResult M>
struct value<M> {
    using numbers = std::span<const double>;
    static auto of(const M& metric) {
        if constexpr (HasMaxima<M>)
            return metric.result(numbers{}, numbers{}, std::size_t{});
        else
            return metric.result(numbers{}, std::size_t{});
    }
    using type = decltype(of(std::declval<const M&>()));
};
}  // namespace detail
/// What a metric measures: a double, or what result() returns.
template <class M>
using value_of = typename detail::value<M>::type;

/// Whether the value is one number, or stands for one. It then has a name in a report::evaluation.
template <class M>
inline constexpr bool is_one_number = std::is_convertible_v<value_of<M>, double>;

}  // namespace lockstep::metrics
