// SPDX-License-Identifier: BSD-3-Clause
// top_k with error feedback.
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double ratio = 0.05) {
    return recipe(
        parts{.compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = ratio}}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/top_k: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("top_k with error feedback, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("top_k with error feedback, 8 workers", of(8), "a ratio of 0.06", of(8, 0.06));
    differs("top_k with error feedback, 8 workers", of(8), "4 workers", of(4));
}

// tests/settings/CMakeLists.txt expects it to fail.
TEST_CASE("settings/top_k: one setting of many has other bits", "[.other_bits]") {
    const outcome alone = run(ls::comm::group{}, with(of(8), {}));
    runs all{"top_k"};
    on_groups({3}, [&](const mpi::communicator& group) {
        for (const machine& on : all_machines()) {
            if (on.transport != ls::transport::messages || !on.overlap) continue;
            auto plan = of(8);
            if (on.bucket == 1U << 16U && on.thread && on.threads == 2) plan.seed = 6;
            all.add(group, plan, on, alone);
        }
    });
    CHECK(all.over_ranks().hashes.size() == 1);
}
