// SPDX-License-Identifier: BSD-3-Clause
// TernGrad.
#include "lockstep/compress/terngrad.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, const ls::compress::terngrad& terngrad = {}) {
    return recipe(parts{.compressor = terngrad, .workers = workers});
}

}  // namespace

TEST_CASE("settings/terngrad: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("terngrad, ", workers, " workers"), of(workers), {thread_without_overlap()});
    same_everywhere("terngrad without clipping, 4 workers", of(4, {.clip = 0}), {thread_without_overlap()});
    differs("terngrad, 8 workers", of(8), "a clip of 2", of(8, {.clip = 2}));
}
