// SPDX-License-Identifier: BSD-3-Clause
// quantize with error feedback.
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, std::size_t bits = 4) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::quantize{.bits = bits, .bucket = 100}},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/quantize: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("quantize with error feedback, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("quantize with error feedback, 8 workers", of(8), "5 bits", of(8, 5));
}
