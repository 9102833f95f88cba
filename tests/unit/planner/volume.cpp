// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/planner/volume.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;

TEST_CASE("planner/volume: the ends of the hybrid form are data and model parallelism", "[planner]") {
    const planner::layer_volume fc6{.inputs = 25088, .weights = 25088.0 * 4096, .batch = 256, .nodes = 64};
    CHECK(planner::bytes_sent(fc6, 64) == Approx(4 * 25088.0 * 4096 * 2 * 63 / 64));
    CHECK(planner::bytes_sent(fc6, 1) == Approx(2 * 4 * 25088.0 * 256 * 63 / 64));
}

// Megabytes for each node: 64 nodes, minibatch 256 (facts of Das et al. 2016, by the form without the factors (1 - G/N)
// and (G - 1)).
TEST_CASE("planner/volume: dense layers of VGG-A and OverFeat", "[planner]") {
    struct row {
        double inputs, outputs, groups_half_duplex, groups_full_duplex;
    };
    const row rows[] = {{25088, 4096, 2, 2}, {4096, 1000, 4, 8}, {36864, 3072, 2, 4}};
    for (const row& of : rows) {
        planner::layer_volume layer{.inputs = of.inputs, .weights = of.inputs * of.outputs, .batch = 256, .nodes = 64};
        // The exact form moves the minimum by less than a factor of two from that of the approximate one.
        CHECK(planner::best_groups(layer) >= of.groups_half_duplex / 2);
        CHECK(planner::best_groups(layer) <= of.groups_half_duplex * 2);
        CHECK(planner::ideal_groups(layer) == Approx(std::sqrt(64 * 256 / of.outputs)));
        layer.overlap = 1;
        CHECK(planner::best_groups(layer) >= of.groups_full_duplex / 2);
        CHECK(planner::best_groups(layer) <= of.groups_full_duplex * 2);
        // Hybrid beats data parallelism by 5 to 16 times and is never behind model parallelism.
        CHECK(planner::bytes_sent(layer, planner::best_groups(layer)) * 5 < planner::bytes_sent(layer, 64));
        CHECK(planner::bytes_sent(layer, planner::best_groups(layer)) <= planner::bytes_sent(layer, 1));
    }
}
