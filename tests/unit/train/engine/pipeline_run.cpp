// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/train/engine/pipeline_run.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/model/stages.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/pipeline.hpp"

namespace ls = lockstep;
namespace train = ls::train;
namespace partition = ls::partition;

namespace {

/// Sums that the order of additions changes.
std::vector<float> random_numbers(std::size_t count, std::mt19937& random) {
    std::vector<float> out(count);
    for (float& one : out) one = std::ldexp(static_cast<float>(random() % 1000), static_cast<int>(random() % 40) - 20);
    return out;
}

/// Of the lanes of a node, as one rank adds them.
float sum_of(const std::vector<float>& lanes, const ls::tensor::subtree& node) {
    std::vector<float> held(ls::tensor::tree_depth(node.count) + 1);
    ls::tensor::walk(
        node.count, [&](std::size_t lane, std::size_t level) { held[level] = lanes[node.first + lane]; },
        [&](std::size_t level) { held[level] += held[level + 1]; });
    return held[0];
}

}  // namespace

TEST_CASE("train/pipeline_run: micro-batches are nodes of the lane tree, and add up to it", "[train]") {
    std::mt19937 random{3};
    std::size_t tried = 0, largest = 0;
    for (std::size_t run = 0; run < 600; ++run) {
        const std::size_t replicas = 1 + random() % 5, lanes = 2 * replicas + random() % 40,
                          workers = run % 3 == 0 ? 1 + random() % replicas : 0, most = 1 + random() % 12;
        using lines = partition::hybrid<partition::data, partition::pipeline<2>>;
        partition::grid on;
        try {
            on = partition::make_grid<lines>(2 * (random() % replicas), 2 * replicas, lanes, workers).of_stage();
        } catch (const ls::core::error&) {
            continue;  // workers that cannot be dealt
        }
        ++tried;
        const auto own = on.own_lanes();
        const auto nodes = on.nodes_of(own), parts = train::micro_batches(on, most);
        const auto slots = train::sum_slots(nodes, parts);
        REQUIRE(slots.size() == parts.size());
        REQUIRE((parts.size() <= most || parts.size() == nodes.size()));
        const auto numbers = random_numbers(on.lanes, random);
        // The sums as a stage keeps them: those of nodes, and temporary ones.
        std::vector<float> sums(nodes.size()), temporary(8);
        const auto at = [&](const train::sum_slot& slot, std::size_t level) -> float& {
            return level == 0 ? sums[slot.node] : temporary[level - 1];
        };
        std::size_t lane = own.first;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            REQUIRE(parts[i].first == lane);
            lane += parts[i].count;
            largest = std::max(largest, parts[i].count);
            at(slots[i], slots[i].level) = sum_of(numbers, parts[i]);
            for (std::size_t merged = 0; merged < slots[i].merges; ++merged)
                at(slots[i], slots[i].level - merged - 1) += at(slots[i], slots[i].level - merged);
        }
        REQUIRE(lane == own.last);
        for (std::size_t node = 0; node < nodes.size(); ++node) CHECK(sums[node] == sum_of(numbers, nodes[node]));
    }
    CHECK(tried > 400);
    CHECK(largest >= 16);
}

TEST_CASE("train/pipeline_run: stages run micro-batches in an order that ends, and hold few", "[train]") {
    for (std::size_t stages = 1; stages <= 6; ++stages)
        for (std::size_t count = 1; count <= 9; ++count) {
            struct action {
                bool is_backward;
                std::size_t which;
            };
            std::vector<std::vector<action>> orders(stages);
            for (std::size_t stage = 0; stage < stages; ++stage)
                train::each_in_pipeline(
                    count, stages - 1 - stage,
                    [&](std::size_t at) {
                        orders[stage].push_back({false, at});
                    },
                    [&](std::size_t at) {
                        orders[stage].push_back({true, at});
                    });
            // Each stage goes on as soon as what it needs is there.
            std::vector<std::size_t> next(stages), forward(stages), backward(stages);
            for (bool moved = true; std::exchange(moved, false);)
                for (std::size_t stage = 0; stage < stages; ++stage) {
                    if (next[stage] == orders[stage].size()) continue;
                    const action& here = orders[stage][next[stage]];
                    const bool is_ready = here.is_backward ? stage + 1 == stages ? forward[stage] > here.which
                                                                                 : backward[stage + 1] > here.which
                                                           : stage == 0 || forward[stage - 1] > here.which;
                    if (!is_ready) continue;
                    std::size_t& done = here.is_backward ? backward[stage] : forward[stage];
                    REQUIRE(done == here.which);  // in ascending order
                    ++done;
                    ++next[stage];
                    moved = true;
                    REQUIRE(forward[stage] - backward[stage] <= stages - stage);
                }
            for (std::size_t stage = 0; stage < stages; ++stage) CHECK(backward[stage] == count);
        }
}

TEST_CASE("train/pipeline_run: more micro-batches where a weight is used for more", "[train]") {
    using ls::model::best_micro_batches;
    CHECK(best_micro_batches(6e6, 1'000'000, 128, 2) == 2);
    CHECK(best_micro_batches(6e6, 1'000'000, 2048, 2) == 8);
    CHECK(best_micro_batches(25e6, 582'026, 128, 2) == 5);
    CHECK(best_micro_batches(25e6, 582'026, 128, 4) == 9);
    CHECK(best_micro_batches(1e9, 0, 128, 4) == 16);
    CHECK(best_micro_batches(0, 100, 128, 4) == 4);
}
