// SPDX-License-Identifier: BSD-3-Clause
// Two stages in groups: exact, and with a compressor. One rank alone, without stages, is the reference.
#include "lockstep/partition/pipeline.hpp"

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

constexpr auto stages = ls::partition::hybrid{ls::partition::data{}, ls::partition::pipeline<2>{}};

refusal shared_memory() {
    return {[](const machine& on, int) { return on.transport == ls::transport::shared_memory; },
            "the plan asks for shared memory, and the stages of a pipeline exchange messages; leave transport out"};
}

}  // namespace

TEST_CASE("settings/pipeline: one hash", "[settings]") {
    const std::vector refused{thread_without_overlap(), shared_memory()};
    same_everywhere("two stages, uncompressed", recipe(parts{.partition = stages}), refused,
                    run(ls::comm::group{}, with(recipe(parts{}), {})));
    constexpr ls::compress::error_feedback compressed{ls::compress::quantize{.bits = 4, .bucket = 100}};
    for (const std::size_t workers : {8, 3})
        same_everywhere(text("two stages, quantize with error feedback, ", workers, " workers"),
                        recipe(parts{.compressor = compressed, .partition = stages, .workers = workers}), refused,
                        run(ls::comm::group{}, with(recipe(parts{.compressor = compressed, .workers = workers}), {})));
}
