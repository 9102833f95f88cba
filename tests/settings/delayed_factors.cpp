// SPDX-License-Identifier: BSD-3-Clause
// Sufficient factors have the hash of the step that exchanges gradients, of the step before as well.
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/factors.hpp"
#include "settings/settings.hpp"

using namespace settings;

TEST_CASE("settings/delayed_factors: one hash", "[settings]") {
    const auto plain = recipe(parts{.sync = ls::sync::delayed{}});
    const outcome wanted = run(ls::comm::group{}, with(plain, {}));
    const auto by_cost = recipe(parts{.sync = ls::sync::delayed{}, .factors = ls::sync::factors{}});
    same_everywhere("delayed factors by cost", by_cost, {thread_without_overlap(), delayed_with_a_thread()}, wanted);
    auto always = by_cost;
    always.factors.always = true;
    same_everywhere("delayed factors always", always,
                    {thread_without_overlap(), delayed_with_a_thread(), factors_in_shared_memory()}, wanted);
    auto other = always;
    other.seed = 6;
    differs("delayed factors always", always, "seed 6", other);
}
