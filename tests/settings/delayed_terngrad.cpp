// SPDX-License-Identifier: BSD-3-Clause
// Compressed gradients of the step before: terngrad.
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/sync/delayed.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double number = 2.5) {
    return recipe(
        parts{.compressor = ls::compress::terngrad{.clip = number}, .sync = ls::sync::delayed{}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/delayed_terngrad: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("delayed terngrad, ", workers, " workers"), of(workers),
                        {thread_without_overlap(), delayed_with_a_thread()});
    differs("delayed terngrad, 8 workers", of(8), "a clip of 2", of(8, 2));
}
