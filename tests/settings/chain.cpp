// SPDX-License-Identifier: BSD-3-Clause
// By layer: a chain, a sparsifier that sends more at first, and numbers of 8 bits.
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

/// The convolution's ratio is reached in the fifth of seven steps.
auto of(std::size_t workers, double ratio = 0.05) {
    using namespace ls::compress;
    const warm_up<top_k> sparse{.inner = {.ratio = ratio}, .each = 1, .start = 1};
    const chain both{top_k{.ratio = ratio}, quantize{.bits = 4, .bucket = 64}};
    return recipe(parts{.compressor = by_layer{error_feedback{both}, error_feedback{sparse}, quantize{.bits = 8}},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/chain: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("a chain by layer, warmed up, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("a chain by layer, warmed up, 8 workers", of(8), "a ratio of 0.06", of(8, 0.06));
}
