// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/reduction_tree.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/tree.hpp"

namespace collectives = lockstep::collectives;

namespace {

/// Transfers that locations of the nodes need until the owner has the root.
std::size_t transfers(const collectives::lane_tree& tree, const std::vector<collectives::node_location>& locations,
                      std::size_t owner) {
    std::size_t count = locations[tree.root()].rank != owner;
    for (std::size_t v = 0; v < tree.nodes().size(); ++v)
        if (tree.nodes()[v].parent != collectives::nowhere)
            count += locations[v].rank != locations[tree.nodes()[v].parent].rank;
    return count;
}

/// The fewest transfers that exist, from the cost of every node on every rank (Sankoff 1975).
std::vector<std::size_t> fewest(const collectives::lane_tree& tree, std::size_t ranks) {
    constexpr std::size_t never = 1'000'000;
    std::vector<std::vector<std::size_t>> cost(tree.nodes().size(), std::vector<std::size_t>(ranks, 0));
    const auto least = [&](std::size_t node, std::size_t at) {
        std::size_t best = cost[node][at];
        for (std::size_t rank = 0; rank < ranks; ++rank) best = std::min(best, cost[node][rank] + 1);
        return best;
    };
    for (std::size_t v = 0; v < tree.nodes().size(); ++v) {
        const auto& node = tree.nodes()[v];
        for (std::size_t rank = 0; rank < ranks; ++rank)
            cost[v][rank] =
                node.leaf() ? (rank == node.rank ? 0 : never) : least(node.left, rank) + least(node.right, rank);
    }
    std::vector<std::size_t> out(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) out[rank] = least(tree.root(), rank);
    return out;
}

}  // namespace

TEST_CASE("collectives/reduction_tree: the least route moves as few sums as any can", "[collectives]") {
    for (std::size_t ranks = 1; ranks <= 24; ++ranks) {
        for (const std::size_t lanes : {std::size_t{1}, std::size_t{8}, ranks, std::size_t{64}, std::size_t{100}}) {
            const collectives::lane_tree tree{collectives::deal_lanes(ranks, lanes)};
            const auto best = fewest(tree, ranks);
            std::vector<collectives::node_location> least(tree.nodes().size());
            std::vector<collectives::node_location> direct(tree.nodes().size());
            for (std::size_t owner = 0; owner < ranks; ++owner) {
                INFO(ranks << " ranks, " << lanes << " lanes, owner " << owner);
                tree.locate(owner, false, least);
                tree.locate(owner, true, direct);
                REQUIRE(transfers(tree, least, owner) == best[owner]);
                REQUIRE(transfers(tree, direct, owner) >= best[owner]);
                for (std::size_t v = 0; v < tree.nodes().size(); ++v) REQUIRE(least[v].leaf != collectives::nowhere);
            }
        }
    }
}

TEST_CASE("collectives/reduction_tree: the tree is the one over lane numbers", "[collectives]") {
    const std::vector<lockstep::parallel::block> lanes{{0, 3}, {3, 5}};
    const collectives::lane_tree tree{lanes};
    // ((0 1) (2 3)) (4): rank 0 can finish [0,2) and [2,3), rank 1 [3,4) and [4,5).
    REQUIRE(tree.nodes().size() == 7);
    const auto& root = tree.nodes()[tree.root()];
    CHECK(tree.nodes()[root.right].rank == 1);
    CHECK(tree.nodes()[root.right].slot == 1);
    const auto& four = tree.nodes()[root.left];
    CHECK(tree.nodes()[four.left].rank == 0);
    CHECK(tree.nodes()[four.left].slot == 0);
    CHECK_FALSE(tree.nodes()[four.right].leaf());
    CHECK(tree.total() == 5);
}

TEST_CASE("collectives/reduction_tree: the automatic route has the less loaded busiest rank", "[collectives]") {
    for (std::size_t ranks = 2; ranks <= 20; ++ranks) {
        for (const std::size_t lanes : {std::size_t{8}, std::size_t{64}, std::size_t{100}}) {
            const auto deal = collectives::deal_lanes(ranks, lanes);
            const auto strips = collectives::tree_strips(deal, 16 * ranks);
            const collectives::lane_tree tree{deal};
            const auto most = [&](collectives::tree_route route) {
                std::size_t out = 0;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    const auto program = collectives::tree_reduce_scatter(rank, deal, 16 * ranks, strips, route);
                    out = std::max({out, program.sent().elements, program.received().elements});
                }
                return out;
            };
            INFO(ranks << " ranks, " << lanes << " lanes");
            CHECK(most(collectives::tree_route::direct) == tree.busiest(strips, true));
            CHECK(most(collectives::tree_route::least) == tree.busiest(strips, false));
            CHECK(most(collectives::tree_route::automatic) ==
                  std::min(tree.busiest(strips, true), tree.busiest(strips, false)));
        }
    }
}
