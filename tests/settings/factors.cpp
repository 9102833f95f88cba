// SPDX-License-Identifier: BSD-3-Clause
// Sufficient factors have the hash of the step that exchanges gradients.
#include "lockstep/sync/factors.hpp"
#include "settings/settings.hpp"

using namespace settings;

TEST_CASE("settings/factors: one hash", "[settings]") {
    const auto plain = recipe(parts{.sync = ls::sync::every_step{}});
    const outcome wanted = run(ls::comm::group{}, with(plain, {}));
    same_everywhere("the uncompressed step", plain, {thread_without_overlap()}, wanted);
    const auto by_cost = recipe(parts{.sync = ls::sync::every_step{}, .factors = ls::sync::factors{}});
    same_everywhere("synchronous factors by cost", by_cost, {thread_without_overlap()}, wanted);
    auto always = by_cost;
    always.factors.always = true;
    same_everywhere("synchronous factors always", always, {thread_without_overlap(), factors_in_shared_memory()},
                    wanted);
    auto other = always;
    other.seed = 6;
    differs("synchronous factors always", always, "seed 6", other);
}
