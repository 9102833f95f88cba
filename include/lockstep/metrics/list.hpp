// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several metrics, to be asked for together.
// Tested by tests/unit/metrics/accuracy.cpp.

#include "lockstep/core/pack.hpp"
#include "lockstep/metrics/concept.hpp"

namespace lockstep::metrics {

/// `list{top_k{.k = 5}, mine{}}`: a trainer evaluates them in one pass over the samples.
template <class... Metrics>
struct list {
    core::pack<Metrics...> all{};

    constexpr list() = default;
    constexpr explicit list(const Metrics&... metrics) requires(sizeof...(Metrics) > 0) : all{metrics...} {}
};

namespace detail {
template <class Metrics>
struct listed {
    using type = list<Metrics>;
};
template <class... Metrics>
struct listed<list<Metrics...>> {
    using type = list<Metrics...>;
};
}  // namespace detail
/// The list of a list, or of one metric by itself.
template <class Metrics>
using list_of = typename detail::listed<Metrics>::type;

}  // namespace lockstep::metrics
