// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/partition/grid.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "lockstep/partition/data.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"

namespace partition = lockstep::partition;
using lockstep::parallel::block;
using partition::grid;

TEST_CASE("partition/grid: rank = replica x shards + shard", "[partition]") {
    for (std::size_t shards = 1; shards <= 6; ++shards)
        for (std::size_t replicas = 1; replicas <= 6; ++replicas) {
            std::set<std::pair<std::size_t, std::size_t>> places;
            for (std::size_t rank = 0; rank < shards * replicas; ++rank) {
                const grid at{.rank = rank, .ranks = shards * replicas, .shards = shards, .lanes = 64};
                REQUIRE(at.replicas() == replicas);
                REQUIRE(at.replica() < replicas);
                REQUIRE(at.shard() < shards);
                REQUIRE(at.replica() * shards + at.shard() == rank);
                places.emplace(at.replica(), at.shard());
            }
            REQUIRE(places.size() == shards * replicas);
        }
}

TEST_CASE("partition/grid: lanes are dealt to ranks in order; those of a model group are those of its ranks",
          "[partition]") {
    for (std::size_t shards = 1; shards <= 4; ++shards)
        for (std::size_t replicas = 1; replicas <= 5; ++replicas) {
            const std::size_t ranks = shards * replicas;
            for (std::size_t lanes = ranks; lanes <= ranks + 9; ++lanes) {
                INFO(ranks << " ranks, " << shards << " shards, " << lanes << " lanes");
                std::size_t at = 0;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    const grid place{.rank = rank, .ranks = ranks, .shards = shards, .lanes = lanes};
                    const block mine = place.own_lanes();
                    REQUIRE(mine == place.lanes_of(rank));
                    REQUIRE(mine.first == at);
                    REQUIRE(!mine.empty());
                    at = mine.last;
                    const block group = place.group_lanes();
                    REQUIRE(group == place.lanes_of_replica(place.replica()));
                    std::size_t lanes_of_group = 0;
                    for (std::size_t member = 0; member < shards; ++member)
                        lanes_of_group += place.lanes_of(place.replica() * shards + member).size();
                    REQUIRE(group.size() == lanes_of_group);
                    REQUIRE(group.first <= mine.first);
                    REQUIRE(mine.last <= group.last);
                }
                REQUIRE(at == lanes);
            }
        }
}

TEST_CASE("partition/grid: ranks that fit", "[partition]") {
    using partition::make_grid;
    const grid data = make_grid<partition::data>(2, 3, 8);
    CHECK(data.rank == 2);
    CHECK(data.replicas() == 3);
    CHECK(data.lanes == 8);
    CHECK(make_grid<partition::model<4>>(3, 4, 4).shard() == 3);
    const grid hybrid = make_grid<partition::hybrid<partition::data, partition::model<2>>>(5, 6, 8);
    CHECK(hybrid.replicas() == 3);
    CHECK(hybrid.replica() == 2);
    CHECK(hybrid.shard() == 1);
}

TEST_CASE("partition/grid: ranks that do not fill the grid are refused", "[partition]") {
    using partition::make_grid;
    using model_2 = partition::model<2>;
    CHECK_THROWS_WITH((make_grid<model_2>(0, 3, 8)),
                      "lockstep: 3 ranks do not fill a model partition with 2 shards; start 2 ranks, or use a hybrid "
                      "partition to have several groups");
    CHECK_THROWS_WITH((make_grid<model_2>(0, 4, 8)),
                      Catch::Contains("4 ranks do not fill a model partition with 2 shards"));
    CHECK_THROWS_WITH((make_grid<model_2>(0, 1, 8)),
                      Catch::Contains("1 rank does not fill a model partition with 2 shards"));
    CHECK_THROWS_WITH((make_grid<partition::model<1>>(0, 2, 8)), Catch::Contains("start 1 rank, or use a hybrid"));
    using hybrid = partition::hybrid<partition::data, partition::model<4>>;
    CHECK_THROWS_WITH((make_grid<hybrid>(5, 6, 8)),
                      "lockstep: 6 ranks do not fill a hybrid partition with 4 shards; start a multiple of 4 ranks");
    CHECK_THROWS_AS((make_grid<hybrid>(5, 6, 8)), lockstep::core::error);
}

TEST_CASE("partition/grid: fewer lanes than ranks are refused", "[partition]") {
    using partition::make_grid;
    CHECK_THROWS_WITH((make_grid<partition::data>(0, 9, 8)),
                      "lockstep: 9 ranks share 8 lanes, so some would have nothing to do; set lanes to at least 9 "
                      "(lanes are part of the recipe: "
                      "another number gives other bits)");
    CHECK_THROWS_WITH((make_grid<partition::data>(1, 2, 1)), Catch::Contains("2 ranks share 1 lane, so"));
    CHECK_NOTHROW(make_grid<partition::data>(0, 8, 8));
}

TEST_CASE("partition/grid: workers are dealt to ranks, lanes inside of them; no rank holds parts of two",
          "[partition]") {
    for (std::size_t shards = 1; shards <= 3; ++shards)
        for (std::size_t replicas = 1; replicas <= 5; ++replicas)
            for (std::size_t workers = 1; workers <= 7; ++workers)
                for (std::size_t lanes = std::max(workers, shards * replicas); lanes <= 40; lanes += 3) {
                    const std::size_t ranks = shards * replicas;
                    INFO(ranks << " ranks, " << shards << " shards, " << workers << " workers, " << lanes << " lanes");
                    grid on{.rank = 0, .ranks = ranks, .shards = shards, .lanes = lanes};
                    on.workers = workers;
                    bool fits = true;  // no worker has more ranks than lanes
                    for (std::size_t rank = 0; rank < ranks; ++rank) {
                        const auto part = on.part_of(rank);
                        fits =
                            fits && part.count <= lockstep::parallel::split(lanes, workers, part.workers.first).size();
                    }
                    on.workers = 0;
                    if (!fits) {
                        REQUIRE_THROWS_WITH(partition::deal_workers(on, workers),
                                            Catch::Contains("set lanes to at least"));
                        continue;
                    }
                    partition::deal_workers(on, workers);
                    const std::size_t each = on.worker_lanes();
                    REQUIRE(std::has_single_bit(each));
                    REQUIRE(on.lanes == each * workers);
                    std::size_t at = 0;
                    for (std::size_t rank = 0; rank < ranks; ++rank) {
                        const auto run = on.lanes_of(rank);
                        REQUIRE(run.first == at);
                        REQUIRE(run.last > run.first);
                        at = run.last;
                        const auto part = on.part_of(rank);
                        const bool inside = run.first / each == (run.last - 1) / each;
                        REQUIRE((inside || (run.first % each == 0 && run.last % each == 0)));
                        REQUIRE(part.workers == block{run.first / each, (run.last - 1) / each + 1});
                        REQUIRE((part.count > 1 || run.size() == part.workers.size() * each));
                        for (const auto& node : on.nodes_of(run)) REQUIRE(node.count <= each);
                    }
                    REQUIRE(at == on.lanes);
                    // Rows are dealt to as many lanes as the recipe has, in their order.
                    std::size_t dealt = 0;
                    for (std::size_t lane = 0; lane < on.lanes; ++lane) {
                        REQUIRE(on.recipe_lane(lane) == dealt);
                        REQUIRE(on.recipe_lane(lane + 1) - dealt <= 1);
                        dealt = on.recipe_lane(lane + 1);
                    }
                    REQUIRE(dealt == lanes);
                }
}

TEST_CASE("partition/grid: every number of workers and ranks up to that of lanes can be dealt", "[partition]") {
    for (std::size_t lanes = 1; lanes <= 24; ++lanes)
        for (std::size_t workers = 1; workers <= lanes; ++workers)
            for (std::size_t ranks = 1; ranks <= lanes; ++ranks) {
                INFO(ranks << " ranks, " << workers << " workers, " << lanes << " lanes");
                grid on = partition::make_grid<partition::data>(0, ranks, lanes, workers);
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    const auto run = on.lanes_of(rank);
                    REQUIRE(on.recipe_lane(run.last) > on.recipe_lane(run.first));
                }
            }
    // A group of ranks is not taken apart.
    using hybrid = partition::hybrid<partition::data, partition::model<2>>;
    CHECK_THROWS_WITH((partition::make_grid<hybrid>(0, 8, 9, 3)),
                      "lockstep: worker 0 of 3 has 3 lanes for 4 of the 8 ranks; set lanes to at least 12 (lanes are "
                      "part of the recipe: another number gives other bits), or use more workers or fewer ranks");
}

TEST_CASE(
    "partition/grid: with a power of two of lanes for each worker the lanes are those of a recipe without workers",
    "[partition]") {
    for (const std::size_t ranks : {1UL, 2UL, 4UL, 8UL}) {
        grid on{.rank = 0, .ranks = ranks, .shards = 1, .lanes = 16};
        const grid plain = on;
        partition::deal_workers(on, 4);
        CHECK(on.lanes == 16);
        for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(on.lanes_of(rank) == plain.lanes_of(rank));
        for (std::size_t lane = 0; lane <= 16; ++lane) CHECK(on.recipe_lane(lane) == lane);
    }
}
