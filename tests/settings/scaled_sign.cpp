// SPDX-License-Identifier: BSD-3-Clause
// Scaled signs with error feedback.
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::scaled_sign{}}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/scaled_sign: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("scaled signs with error feedback, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("scaled signs, 8 workers", of(8), "4 workers", of(4));
}
