// SPDX-License-Identifier: BSD-3-Clause
// Majority votes of signs of momenta.
#include "lockstep/compress/sign_vote.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, double momentum = 0.9) {
    return recipe(parts{.compressor = ls::compress::sign_vote{.momentum = momentum}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/sign_vote: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("votes of momenta, ", workers, " workers"), of(workers), {thread_without_overlap()});
    differs("votes, 8 workers", of(8), "no momentum", of(8, 0));
}
