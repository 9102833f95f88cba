// SPDX-License-Identifier: BSD-3-Clause
// Compressed gradients of the step before: top_k with error feedback.
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/sync/delayed.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double number = 0.05) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = number}},
                        .sync = ls::sync::delayed{},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/delayed_top_k: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("delayed top_k with error feedback, ", workers, " workers"), of(workers),
                        {thread_without_overlap(), delayed_with_a_thread()});
    differs("delayed top_k with error feedback, 8 workers", of(8), "a ratio of 0.06", of(8, 0.06));
}
