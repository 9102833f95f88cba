// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An evaluation with the values of its metrics, each of its own type.
// Tested by tests/equivalence/metrics.cpp.

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/metrics/concept.hpp"
#include "lockstep/metrics/list.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// How many metrics of an evaluation have this type.
template <class Metric, class... Metrics>
inline constexpr std::size_t count_of = (std::size_t{std::is_same_v<Metric, Metrics>} + ... + 0);
/// Whether a metric is among those of an evaluation.
template <class Metric, class... Metrics>
inline constexpr bool is_measured = count_of<Metric, Metrics...> > 0;
/// Whether its type is that of no other one.
template <class Metric, class... Metrics>
inline constexpr bool is_measured_once = count_of<Metric, Metrics...> <= 1;

/// What evaluate(set, metrics::list{..}) returns: `found["accuracy"]` finds numbers by name,
/// `found.get<metrics::confusion_matrix>()` what a metric makes of several sums.
template <class... Metrics>
struct measured : evaluation {
    core::pack<metrics::value_of<Metrics>...> values{};  ///< in the order of the list

    /// The value of a metric of the list, of the type that its result() returns; a double without one.
    template <class Metric>
    [[nodiscard]] const metrics::value_of<Metric>& get() const& {
        static_assert(is_measured<Metric, Metrics...>,
                      "lockstep: get<..>() names no metric that evaluate() was given in its metrics::list{..}");
        static_assert(is_measured_once<Metric, Metrics...>,
                      "lockstep: get<..>() finds a metric by its type, and evaluate() was given several of that type: "
                      "evaluate them one after the other");
        if constexpr (is_measured<Metric, Metrics...>)
            return core::get<index_of<Metric>()>(values);
        else
            core::fail("there is no such metric", "pass it to evaluate()");
    }
    /// The same of a temporary.
    template <class Metric>
    [[nodiscard]] metrics::value_of<Metric> get() && {
        return std::as_const(*this).template get<Metric>();
    }

private:
    template <class Metric>
    [[nodiscard]] static consteval std::size_t index_of() {
        const std::array<bool, sizeof...(Metrics)> same{std::is_same_v<Metric, Metrics>...};
        std::size_t index = 0;
        while (!same[index]) ++index;
        return index;
    }
};

/// Without metrics, an evaluation as it is.
template <class... Metrics>
using evaluation_of = std::conditional_t<sizeof...(Metrics) == 0, evaluation, measured<Metrics...>>;

namespace detail {
template <class... Metrics>
evaluation_of<Metrics...> evaluation_for(const metrics::list<Metrics...>&);
}  // namespace detail
/// What evaluate() returns for a list, or for one metric by itself.
template <class Metrics>
using evaluation_with = decltype(detail::evaluation_for(std::declval<const metrics::list_of<Metrics>&>()));

}  // namespace lockstep::report
