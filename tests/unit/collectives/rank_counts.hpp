// SPDX-License-Identifier: BSD-3-Clause
// The numbers of ranks that schedules are verified for.
#pragma once
#include <cstddef>
#include <vector>

/// 1 to 64, 128, 256 and 1000.
inline std::vector<std::size_t> rank_counts() {
    std::vector<std::size_t> out;
    for (std::size_t ranks = 1; ranks <= 64; ++ranks) out.push_back(ranks);
    out.insert(out.end(), {128, 256, 1000});
    return out;
}
/// Beyond 64 ranks these sizes would take too long.
[[nodiscard]] inline bool takes_long(std::size_t ranks, std::size_t n, std::size_t most) {
    return ranks > 64 && n > most;
}
