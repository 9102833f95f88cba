// SPDX-License-Identifier: BSD-3-Clause
// LARS on the mean of compressed gradients: power_sgd of rank 2.
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/optim/lars.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double trust = 0.1) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::power_sgd{.rank = 2}},
                        .optimizer = ls::optim::lars{.decay = 1e-3, .trust = trust},
                        .workers = workers,
                        .rate = 0.1});
}

}  // namespace

TEST_CASE("settings/lars_power_sgd: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("lars and power_sgd of rank 2, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("lars and power_sgd of rank 2, 8 workers", of(8), "a trust of 0.2", of(8, 0.2));
}
