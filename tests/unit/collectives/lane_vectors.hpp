// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What ranks bring to a sum over lanes: numbers whose sum depends on the order of additions.

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/collectives/tree.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lane_vectors {

/// For each rank one n-vector for each node of its run of lanes.
inline std::vector<std::vector<float>> vectors(const std::vector<lockstep::parallel::block>& runs, std::size_t lanes,
                                               std::size_t n) {
    std::vector<std::vector<float>> out;
    for (const lockstep::parallel::block& run : runs) {
        out.emplace_back(lockstep::collectives::tree_data_size(run, lanes, n));
        for (std::size_t s = 0; s < lockstep::tensor::cover(run, lanes).size(); ++s)
            for (std::size_t i = 0; i < n; ++i)
                out.back()[s * n + i] =
                    1.0F / static_cast<float>(7 * i + 5 * run.first + 3 * s + 1) - (run.first % 3 == 0 ? 100.0F : 0.1F);
    }
    return out;
}

}  // namespace lane_vectors
