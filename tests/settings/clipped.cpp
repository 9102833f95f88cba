// SPDX-License-Identifier: BSD-3-Clause
// Clipping of exact gradients.
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(double norm) { return recipe(parts{.clip = ls::sync::clip_by_global_norm{norm}}); }

}  // namespace

TEST_CASE("settings/clipped: one hash", "[settings]") {
    same_everywhere("clipping", of(0.2), {thread_without_overlap()});
    differs("clipping", of(0.2), "a norm of 0.3", of(0.3));
}
