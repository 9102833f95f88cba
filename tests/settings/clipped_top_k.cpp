// SPDX-License-Identifier: BSD-3-Clause
// Clipping of the mean of top_k with error feedback.
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double norm = 0.05) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}},
                        .clip = ls::sync::clip_by_global_norm{norm},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/clipped_top_k: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("clipped top_k, ", workers, " workers"), of(workers), {thread_without_overlap()});
    differs("clipped top_k, 8 workers", of(8), "a norm of 0.06", of(8, 0.06));
}
