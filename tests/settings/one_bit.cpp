// SPDX-License-Identifier: BSD-3-Clause
// 1-bit SGD, quantised both ways.
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, bool by_column = true) {
    return recipe(parts{.compressor = ls::compress::two_sided{ls::compress::error_feedback{
                            ls::compress::one_bit{.by_column = by_column}}},
                        .workers = workers});
}

}  // namespace

TEST_CASE("settings/one_bit: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("1-bit SGD, ", workers, " workers"), of(workers), {thread_without_overlap()});
    differs("1-bit SGD, 8 workers", of(8), "means of segments", of(8, false));
}
