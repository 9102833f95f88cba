// SPDX-License-Identifier: BSD-3-Clause
// Compressed gradients of the step before: power_sgd of rank 2.
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/sync/delayed.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, std::size_t number = 2) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::power_sgd{.rank = number}},
                        .sync = ls::sync::delayed{},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/delayed_power_sgd: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("delayed power_sgd of rank 2, ", workers, " workers"), of(workers),
                        {thread_without_overlap(), delayed_with_a_thread()});
    differs("delayed power_sgd of rank 2, 8 workers", of(8), "rank 1", of(8, 1));
}
