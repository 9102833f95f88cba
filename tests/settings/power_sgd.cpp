// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD of ranks 1, 2 and 4.
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, std::size_t rank) {
    return recipe(
        parts{.compressor = ls::compress::error_feedback{ls::compress::power_sgd{.rank = rank}}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/power_sgd: one hash", "[settings]") {
    for (const std::size_t rank : {1, 2, 4})
        for (const std::size_t workers : {8, 4, 3})
            same_everywhere(text("power_sgd of rank ", rank, ", ", workers, " workers"), of(workers, rank),
                            {thread_without_overlap()});
    differs("power_sgd of rank 1, 8 workers", of(8, 1), "rank 2", of(8, 2));
}
