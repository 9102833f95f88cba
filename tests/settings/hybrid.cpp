// SPDX-License-Identifier: BSD-3-Clause
// Two shards of a model partition in groups: exact, and with a compressor. Two ranks alone are the reference.
#include "lockstep/partition/hybrid.hpp"

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/partition/model.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

constexpr auto halves = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};

auto of(std::size_t workers, std::size_t bits = 4) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::quantize{.bits = bits, .bucket = 100}},
                        .partition = halves,
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/hybrid: one hash", "[settings]") {
    same_everywhere("two shards, uncompressed", recipe(parts{.partition = halves}), {thread_without_overlap()});
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("two shards, quantize with error feedback, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("two shards, quantize with error feedback, 8 workers", of(8), "5 bits", of(8, 5));
}
