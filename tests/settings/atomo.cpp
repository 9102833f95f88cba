// SPDX-License-Identifier: BSD-3-Clause
// Spectral atoms, which are drawn: random words belong to workers and tensors.
#include "lockstep/compress/atomo.hpp"
#include "settings/settings.hpp"

using namespace settings;

namespace {

auto of(std::size_t workers, std::size_t atoms = 3) {
    return recipe(parts{.compressor = ls::compress::atomo{.atoms = atoms}, .workers = workers});
}

}  // namespace

TEST_CASE("settings/atomo: one hash", "[settings]") {
    for (const std::size_t workers : {8, 4, 3})
        same_everywhere(text("atomo, ", workers, " workers"), of(workers), {thread_without_overlap()});
    differs("atomo, 8 workers", of(8), "4 atoms", of(8, 4));
}
