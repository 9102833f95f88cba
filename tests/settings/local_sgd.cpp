// SPDX-License-Identifier: BSD-3-Clause
// Local SGD: seven steps, with periods that divide them, or what is left after the start, and others.
#include "lockstep/sync/local_sgd.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, const ls::sync::local_sgd& sync) {
    return recipe(parts{.sync = sync, .workers = workers});
}

}  // namespace

TEST_CASE("settings/local_sgd: one hash", "[settings]") {
    using enum ls::sync::momenta;
    for (const ls::sync::local_sgd& sync :
         {ls::sync::local_sgd{.period = 4}, ls::sync::local_sgd{.period = 3, .momentum = average},
          ls::sync::local_sgd{.period = 2, .start = 2}, ls::sync::local_sgd{.period = 7}})
        for (const std::size_t workers : {8, 4, 3})
            same_everywhere(text("local_sgd(", sync.settings(), "), ", workers, " workers"), of(workers, sync),
                            {thread_without_overlap(), local_sgd_with_a_thread()});
    differs("local_sgd(period=4), 8 workers", of(8, {.period = 4}), "period 3", of(8, {.period = 3}));
}
