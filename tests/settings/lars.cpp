// SPDX-License-Identifier: BSD-3-Clause
// LARS, clipped, in double: a norm with one other bit shows in every weight.
#include "lockstep/optim/lars.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(double norm) {
    return recipe(parts{.optimizer = ls::optim::lars{.decay = 1e-3, .trust = 0.1},
                        .clip = ls::sync::clip_by_global_norm{norm},
                        .precision = ls::real<double>{},
                        .rate = 0.1});
}

}  // namespace

TEST_CASE("settings/lars: one hash", "[settings]") {
    same_everywhere("clipped lars in double", of(0.2), {thread_without_overlap()});
    differs("clipped lars in double", of(0.2), "a norm of 0.3", of(0.3));
}
