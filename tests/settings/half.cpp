// SPDX-License-Identifier: BSD-3-Clause
// Numbers of 16 bits: rounded to nearest, and stochastically with error feedback.
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, bool stochastic = false) {
    return recipe(parts{.compressor = ls::compress::half{.stochastic = stochastic}, .workers = workers});
}
auto fed_back(std::size_t workers) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::bfloat16{.stochastic = true}},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/half: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3}) {
        same_everywhere(text("half, ", workers, " workers"), of(workers), {thread_without_overlap()});
        same_everywhere(text("bfloat16 with error feedback, ", workers, " workers"), fed_back(workers),
                        {thread_without_overlap()});
    }
    differs("half, 8 workers", of(8), "stochastic rounding", of(8, true));
}
