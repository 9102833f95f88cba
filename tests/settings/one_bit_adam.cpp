// SPDX-License-Identifier: BSD-3-Clause
// 1-bit Adam, in its warm-up and after it, with quantize and error feedback.
#include "lockstep/optim/one_bit_adam.hpp"

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, std::uint64_t warm_up = 3) {
    return recipe(parts{.compressor = ls::compress::error_feedback{ls::compress::quantize{.bits = 3, .bucket = 128}},
                        .sync = ls::sync::every_step{},
                        .optimizer = ls::optim::one_bit_adam{.warm_up = warm_up},
                        .clip = ls::sync::no_clipping{},
                        .factors = ls::sync::no_factors{},
                        .precision = ls::real<float>{},
                        .partition = ls::partition::data{},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/one_bit_adam: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("one_bit_adam with quantize, ", workers, " workers"), of(workers),
                        {thread_without_overlap()});
    differs("one_bit_adam with quantize, 8 workers", of(8), "a warm-up of 4 steps", of(8, 4));
    differs("one_bit_adam with quantize, 8 workers", of(8), "4 workers", of(4));
}
