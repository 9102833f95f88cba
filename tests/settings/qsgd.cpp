// SPDX-License-Identifier: BSD-3-Clause
// QSGD in codes of Elias.
#include "lockstep/compress/qsgd.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, std::size_t levels = 7,
        ls::compress::level_coding coding = ls::compress::level_coding::elias) {
    return recipe(
        parts{.compressor = ls::compress::qsgd{.levels = levels, .bucket = 100, .coding = coding}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/qsgd: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("qsgd, ", workers, " workers"), of(workers), {thread_without_overlap()});
    differs("qsgd, 8 workers", of(8), "6 levels", of(8, 6));
}
