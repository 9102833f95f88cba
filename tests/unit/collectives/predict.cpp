// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/predict.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/ring.hpp"
#include "lockstep/collectives/tree.hpp"

using namespace lockstep;

namespace {

constexpr collectives::link over{.latency = 5e-6, .seconds_per_byte = 1e-9};
const collectives::cost_model model{.inside = {}, .between = over, .seconds_per_added_byte = 5e-11};

std::vector<parallel::block> equal(std::size_t ranks, std::size_t each) {
    std::vector<parallel::block> out;
    for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back({rank * each, (rank + 1) * each});
    return out;
}

}  // namespace

TEST_CASE("collectives/predict: a ring takes (p-1) messages and n(p-1)/p elements", "[collectives]") {
    const std::size_t ranks = GENERATE(2U, 3U, 8U, 17U), each = 1000;
    std::vector<collectives::schedule> all;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        all.push_back(collectives::ring_all_gather(rank, equal(ranks, each)));
    const double expected = static_cast<double>(ranks - 1) * (over.latency + 4e3 * over.seconds_per_byte);
    CHECK(collectives::predict(all, 4, model) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("collectives/predict: recursive halving takes log2(p) messages and n(p-1)/p elements, each added once",
          "[collectives]") {
    const std::size_t ranks = GENERATE(2U, 4U, 16U), n = 16 * 1024;
    const auto lanes = collectives::deal_lanes(ranks, ranks);
    const auto strips = collectives::tree_strips(ranks, ranks, n);
    std::vector<collectives::schedule> all;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        all.push_back(collectives::tree_reduce_scatter(rank, lanes, n, strips, collectives::tree_route::least));
    const double moved = static_cast<double>(n) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    const double expected = std::log2(static_cast<double>(ranks)) * over.latency +
                            moved * (4 * over.seconds_per_byte + 4 * model.seconds_per_added_byte);
    CHECK(collectives::predict(all, 4, model) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("collectives/predict: messages to one rank arrive one after the other", "[collectives]") {
    std::vector<collectives::schedule> all(3, collectives::schedule{"gather", true});
    for (std::size_t rank = 1; rank < 3; ++rank) {
        all[rank].send(0, collectives::in_data(0, 100));
        all[rank].end_round();
        all[0].receive(rank, collectives::in_data(rank * 100, 100));
    }
    all[0].end_round();
    // The first is there after its own time and the latency, the second when the link into rank 0 is free again.
    CHECK(collectives::predict(all, 8, model) == Approx(2 * 800 * over.seconds_per_byte + over.latency).epsilon(1e-12));
}

TEST_CASE("collectives/predict: a schedule that waits for ever is an error", "[collectives]") {
    std::vector<collectives::schedule> all(2, collectives::schedule{"broken", true});
    all[1].receive(0, collectives::in_data(0, 1));
    all[1].end_round();
    CHECK_THROWS_WITH(collectives::predict(all, 4, model), Catch::Contains("rank 1 of 2 waits for ever in round 0"));
}
