// SPDX-License-Identifier: BSD-3-Clause
// LARS on the mean of compressed gradients: terngrad.
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/optim/lars.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double trust = 0.1) {
    return recipe(parts{.compressor = ls::compress::terngrad{},
                        .optimizer = ls::optim::lars{.decay = 1e-3, .trust = trust},
                        .workers = workers,
                        .rate = 0.1});
}

}  // namespace

TEST_CASE("settings/lars_terngrad: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("lars and terngrad, ", workers, " workers"), of(workers), {thread_without_overlap()});
    differs("lars and terngrad, 8 workers", of(8), "a trust of 0.2", of(8, 0.2));
}
