// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one layer costs to distribute: bytes for each node and step under data, model and hybrid partitions (Das et al.
// 2016).

#include <cmath>

namespace lockstep::planner {

/// One layer of a network as its communication sees it.
struct layer_volume {
    double inputs = 0;   ///< numbers of one sample before the layer
    double weights = 0;  ///< parameters
    double batch = 0;    ///< samples of the global minibatch
    double nodes = 1;
    double bytes = 4;    ///< of one number
    double overlap = 0;  ///< share of sending that is hidden behind receiving: 1 = full duplex
};

/// `groups` groups of nodes / groups nodes: the layer is cut inside a group, and its shards are averaged over the
/// groups. groups = nodes is data parallelism, groups = 1 model parallelism: 2 bytes inputs (batch / groups) (1 -
/// groups / nodes) + bytes weights (2 - overlap) (groups - 1) / nodes.
[[nodiscard]] constexpr double bytes_sent(const layer_volume& of, double groups) noexcept {
    const double activations = 2 * of.bytes * of.inputs * (of.batch / groups) * (1 - groups / of.nodes);
    return activations + of.bytes * of.weights * (2 - of.overlap) * (groups - 1) / of.nodes;
}

/// The power of two of groups that sends the fewest bytes, of nodes whose number is a power of two.
[[nodiscard]] constexpr double best_groups(const layer_volume& of) noexcept {
    double best = 1;
    for (double groups = 2; groups <= of.nodes; groups *= 2)
        if (bytes_sent(of, groups) < bytes_sent(of, best)) best = groups;
    return best;
}

/// Where the derivative of the form without the factor (1 - groups / nodes) vanishes: sqrt(2 nodes batch inputs /
/// (weights (2 - overlap))).
[[nodiscard]] inline double ideal_groups(const layer_volume& of) noexcept {
    return std::sqrt(2 * of.nodes * of.batch * of.inputs / (of.weights * (2 - of.overlap)));
}

}  // namespace lockstep::planner
