// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Synchronous SGD: every rank has the weights after every step. The default of a plan.
// Tested by tests/equivalence/same_bits.cpp.

#include <string>
#include <string_view>

#include "lockstep/sync/owner_updates.hpp"

namespace lockstep::sync {

/// What makes the steps of every_step; another one where the compressor may change (sync/adaptive.hpp).
template <class Types>
struct every_step_strategy {
    using type = owner_updates<Types>;
};

/// w(t+1) = w(t) - rate(t) g(t), with the gradient over the whole minibatch: the owner of each strip adds, updates and
/// hands out.
struct every_step {
    static constexpr std::string_view name = "every_step";
    static constexpr bool has_norms = true;
    static constexpr bool takes_factors = true;
    static constexpr bool takes_proposals = true;
    static constexpr bool takes_adaptive = true;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class Types>
    using strategy = typename every_step_strategy<Types>::type;
};

static_assert(StrategyChoice<every_step>);

}  // namespace lockstep::sync
