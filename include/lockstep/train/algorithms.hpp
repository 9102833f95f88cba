// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file of algorithms that a plan names, read into the values of its network.
// Tested by tests/equivalence/algorithms.cpp.

#include <cstddef>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/planner/convolutions.hpp"

namespace lockstep::train {

/// The plan with the algorithms of its file in its layers, or as it is where it names none. Throws core::error for a
/// file that cannot be read or does not fit the network, and where a file is named that no layer asks for.
template <class Plan>
[[nodiscard, gnu::cold]] Plan with_algorithms(Plan plan) {
    using net = decltype(plan.model);
    if (plan.algorithms.empty()) return plan;
    if constexpr (planner::has_tuned_layers<net>) {
        const auto layers = planner::convolutions<net>(true);
        const auto choices =
            planner::read_algorithms(planner::load_algorithms(plan.algorithms), plan.algorithms, layers);
        std::size_t next = 0;
        core::for_each_index<net::size>([&](auto index) {
            using spec = typename net::template spec<index>;
            // A network hands out its layers as constants; this one is ours, and no constant.
            if constexpr (planner::is_tuned<spec>)
                const_cast<spec&>(plan.model.template node<index>()).chosen.choice = choices[next++];
        });
    } else {
        core::fail(core::text("the plan names a file of algorithms, ", plan.algorithms,
                              ", but no layer takes them from a file"),
                   "write .model = ls::tuned(net) with a net that has layers conv, or leave plan.algorithms empty");
    }
    return plan;
}

}  // namespace lockstep::train
