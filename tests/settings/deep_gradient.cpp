// SPDX-License-Identifier: BSD-3-Clause
// Deep gradient compression: momentum and clipping of each worker before top_k.
#include "lockstep/optim/deep_gradient.hpp"

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, bool masks = true) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}},
                        .sync = ls::sync::every_step{},
                        .optimizer = ls::optim::deep_gradient{.clip = 1, .masks = masks},
                        .clip = ls::sync::no_clipping{},
                        .factors = ls::sync::no_factors{},
                        .precision = ls::real<float>{},
                        .partition = ls::partition::data{},
                        .workers = workers,
                        .rate = 0.02});
}

}  // namespace

TEST_CASE("settings/deep_gradient: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("deep_gradient with top_k, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("deep_gradient with top_k, 8 workers", of(8), "momentum that is not forgotten", of(8, false));
    differs("deep_gradient with top_k, 8 workers", of(8), "4 workers", of(4));
}
