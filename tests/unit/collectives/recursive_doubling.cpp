// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/recursive_doubling.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "unit/collectives/lane_vectors.hpp"

namespace collectives = lockstep::collectives;
namespace tensor = lockstep::tensor;
using lane_vectors::vectors;
using lockstep::parallel::block;

namespace {

template <class Build>
std::vector<collectives::schedule> programs(std::size_t ranks, Build&& build) {
    std::vector<collectives::schedule> out;
    for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back(build(rank));
    return out;
}

/// Whether every rank gets the bits of the tree in as few rounds as there can be.
bool as_the_tree(const std::vector<block>& runs, std::size_t lanes, std::size_t n, bool one_by_one = true) {
    std::vector<collectives::schedule> mine(runs.size());
    if (one_by_one)
        mine = programs(runs.size(), [&](std::size_t rank) { return collectives::doubling_sum(rank, runs, n); });
    else
        collectives::detail::node_exchange{runs, n}.write(0, mine);
    auto data = vectors(runs, lanes, n), expected = data;
    const auto sent = collectives::simulate<float>(mine, data);
    // One rank as the owner of all: the same tree, and fewer messages to check.
    std::vector<block> strips(runs.size());
    strips[0] = {0, n};
    collectives::simulate<float>(programs(runs.size(),
                                          [&](std::size_t rank) {
                                              return collectives::tree_reduce_scatter(rank, runs, n, strips,
                                                                                      collectives::tree_route::direct);
                                          }),
                                 expected);
    std::size_t rounds = 0;
    while ((std::size_t{1} << rounds) < runs.size()) ++rounds;
    bool right = true;
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
        right = right && (n == 0 || std::memcmp(data[rank].data(), expected[0].data(), n * sizeof(float)) == 0);
        right = right && sent[rank] == mine[rank].sent() && mine[rank].invariant() &&
                mine[rank].data_size() <= data[rank].size();
        std::size_t with_messages = 0;
        for (const auto& round : mine[rank].rounds()) with_messages += !round.sends.empty() || !round.receives.empty();
        right = right && with_messages <= rounds;
    }
    return right;
}

}  // namespace

TEST_CASE("collectives/recursive_doubling: the bits of the tree for every number of ranks, lanes and sizes",
          "[collectives]") {
    for (std::size_t ranks = 1; ranks <= 64; ++ranks)
        for (const std::size_t lanes : {ranks, std::size_t{8}, std::size_t{13}, ranks + 27}) {
            for (const std::size_t n : {0U, 1U, 5U}) {
                INFO(ranks << " ranks, " << lanes << " lanes, " << n << " elements");
                REQUIRE(as_the_tree(collectives::deal_lanes(ranks, lanes), lanes, n, n == 5));
            }
        }
    CHECK(as_the_tree(collectives::deal_lanes(128, 128), 128, 3, false));
    CHECK(as_the_tree(collectives::deal_lanes(256, 320), 320, 3, false));
    CHECK(as_the_tree(collectives::deal_lanes(1000, 1000), 1000, 1, false));
}

TEST_CASE("collectives/recursive_doubling: any deal of lanes, also to ranks without any", "[collectives]") {
    CHECK(as_the_tree({{5, 9}, {0, 0}, {0, 5}, {12, 13}, {9, 12}}, 13, 5));
    CHECK(as_the_tree({{0, 0}, {0, 8}, {0, 0}}, 8, 5));
    CHECK(as_the_tree({{4, 8}, {0, 4}}, 8, 5));
    CHECK_THROWS_AS(collectives::doubling_sum(0, std::vector<block>{{0, 2}, {1, 2}}, 4), lockstep::core::error);
}

TEST_CASE("collectives/recursive_doubling: log2(p) messages and n log2(p) elements with aligned lanes",
          "[collectives]") {
    for (std::size_t ranks = 1, rounds = 0; ranks <= 64; ranks *= 2, ++rounds)
        for (const std::size_t rank : {std::size_t{0}, ranks / 2, ranks - 1}) {
            const auto program = collectives::doubling_all_reduce{64}(rank, ranks, 100);
            CHECK(program.sent() == collectives::traffic{rounds, 100 * rounds});
            CHECK(program.received() == program.sent());
            CHECK(program.added() == 100 * rounds);
            CHECK(program.work_size() == (ranks == 1 ? 0 : 100));
        }
    // Nodes that cannot be added yet: never more than cover a run of lanes at both ends.
    for (std::size_t ranks = 2; ranks <= 64; ++ranks)
        for (const std::size_t lanes : {std::size_t{64}, std::size_t{100}}) {
            std::size_t rounds = 0;
            while ((std::size_t{1} << rounds) < ranks) ++rounds;
            const auto program = collectives::doubling_all_reduce{lanes}(ranks / 2, ranks, 1);
            CHECK(program.sent().elements <= 2 * tensor::tree_depth(lanes) * rounds);
        }
}
