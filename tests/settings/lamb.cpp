// SPDX-License-Identifier: BSD-3-Clause
// LAMB, in double: a norm with one other bit shows in every weight.
#include "lockstep/optim/lamb.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(double decay) {
    return recipe(parts{.optimizer = ls::optim::lamb{.decay = decay}, .precision = ls::real<double>{}, .rate = 0.01});
}

}  // namespace

TEST_CASE("settings/lamb: one hash", "[settings]") {
    same_everywhere("lamb in double", of(0.1), {thread_without_overlap()});
    differs("lamb in double", of(0.1), "a decay of 0.11", of(0.11));
}
