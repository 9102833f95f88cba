// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the step before.
#include "lockstep/sync/delayed.hpp"
#include "settings/settings.hpp"

using namespace settings;

TEST_CASE("settings/delayed: one hash", "[settings]") {
    const auto plan = recipe(parts{.sync = ls::sync::delayed{}});
    same_everywhere("delayed", plan, {thread_without_overlap(), delayed_with_a_thread()});
    auto other = plan;
    other.seed = 6;
    differs("delayed", plan, "seed 6", other);
}
