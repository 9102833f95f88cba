// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/hierarchical.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/collectives/halving_doubling.hpp"
#include "lockstep/collectives/ring.hpp"
#include "lockstep/collectives/verify.hpp"
#include "unit/collectives/lane_vectors.hpp"

namespace collectives = lockstep::collectives;
namespace tensor = lockstep::tensor;
using lane_vectors::vectors;
using lockstep::parallel::block;
using hosts_of_ranks = std::vector<std::size_t>;

namespace {

/// Rank r is on host r / each.
hosts_of_ranks in_blocks(std::size_t ranks, std::size_t each) {
    hosts_of_ranks out;
    for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back(rank / each * each);
    return out;
}

/// Rank r is on host r % hosts.
hosts_of_ranks in_turns(std::size_t ranks, std::size_t hosts) {
    hosts_of_ranks out;
    for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back(rank % hosts);
    return out;
}

std::vector<collectives::schedule> whole(const std::vector<block>& runs, std::size_t n, const hosts_of_ranks& on,
                                         collectives::between_hosts between) {
    std::vector<collectives::schedule> out;
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
        auto both = collectives::hierarchical_sum(rank, runs, n, on, between);
        out.push_back(both.sum.then(both.share));
    }
    return out;
}

/// Whether all ranks get the bits of the tree, owned strips are a partition, and what a rank owns is right before it is
/// shared.
bool as_the_tree(const std::vector<block>& runs, std::size_t lanes, std::size_t n, const hosts_of_ranks& on) {
    auto expected = vectors(runs, lanes, n);
    std::vector<collectives::schedule> flat;
    std::vector<block> strips(runs.size());
    strips[0] = {0, n};
    for (std::size_t rank = 0; rank < runs.size(); ++rank)
        flat.push_back(collectives::tree_reduce_scatter(rank, runs, n, strips, collectives::tree_route::direct));
    collectives::simulate<float>(flat, expected);
    const auto same = [&](const std::vector<float>& data, block part) {
        return part.empty() ||
               std::memcmp(data.data() + part.first, expected[0].data() + part.first, part.size() * sizeof(float)) == 0;
    };
    bool right = true;
    for (const auto between : {collectives::between_hosts::tree, collectives::between_hosts::doubling}) {
        auto data = vectors(runs, lanes, n), half = data;
        std::vector<collectives::schedule> programs, sums;
        std::vector<block> own;
        std::size_t owned = 0;
        for (std::size_t rank = 0; rank < runs.size(); ++rank) {
            auto both = collectives::hierarchical_sum(rank, runs, n, on, between);
            own.push_back(both.owned);
            owned += both.owned.size();
            sums.push_back(both.sum);
            programs.push_back(both.sum.then(both.share));
        }
        collectives::simulate<float>(programs, data);
        collectives::simulate<float>(sums, half);
        for (std::size_t rank = 0; rank < runs.size(); ++rank)
            right = right && same(data[rank], {0, n}) && same(half[rank], own[rank]) && programs[rank].invariant();
        right = right && (between == collectives::between_hosts::doubling || owned == n);
    }
    return right;
}

/// Elements that the busiest host sends over its link.
std::size_t over_the_link(const std::vector<collectives::schedule>& all, const hosts_of_ranks& on) {
    std::vector<std::size_t> sent(on.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        for (const auto& one : all[rank].sends())
            if (on[one.peer] != on[rank]) sent[on[rank]] += one.what.count;
    return *std::max_element(sent.begin(), sent.end());
}

template <class C>
std::size_t flat(const C& collective, std::size_t n, const hosts_of_ranks& on) {
    std::vector<collectives::schedule> all;
    for (std::size_t rank = 0; rank < on.size(); ++rank) all.push_back(collective(rank, on.size(), n));
    return over_the_link(all, on);
}

std::size_t in_levels(std::size_t lanes, std::size_t n, const hosts_of_ranks& on,
                      collectives::between_hosts between = collectives::between_hosts::tree) {
    return over_the_link(whole(collectives::deal_lanes(on.size(), lanes), n, on, between), on);
}

}  // namespace

TEST_CASE("collectives/hierarchical: the bits of the tree for every number of ranks and hosts of any size",
          "[collectives]") {
    for (std::size_t ranks = 1; ranks <= 64; ++ranks) {
        const std::size_t sizes[] = {1, 2, 3, 8, ranks};
        for (const std::size_t each : {sizes[ranks % 5], sizes[ranks / 2 % 4 + 1]})
            for (const std::size_t lanes : {ranks, std::size_t{64}}) {
                const std::size_t n = ranks % 7 < 2 ? ranks % 7 : ranks % 4 == 0 ? 101 : 37;
                INFO(ranks << " ranks, " << each << " on a host, " << lanes << " lanes, " << n << " elements");
                REQUIRE(as_the_tree(collectives::deal_lanes(ranks, lanes), lanes, n, in_blocks(ranks, each)));
            }
    }
    CHECK(as_the_tree(collectives::deal_lanes(128, 128), 128, 67, in_blocks(128, 16)));
}

TEST_CASE("collectives/hierarchical: hosts of unequal size, ranks in turns with lanes in runs, ranks without lanes",
          "[collectives]") {
    CHECK(as_the_tree(collectives::deal_lanes(7, 16), 16, 50, {0, 0, 0, 3, 4, 4, 4}));
    CHECK(as_the_tree({{0, 4}, {8, 12}, {4, 8}, {12, 16}}, 16, 50, in_turns(4, 2)));
    CHECK(as_the_tree({{5, 9}, {0, 0}, {0, 5}, {12, 13}, {9, 12}}, 13, 37, {0, 1, 1, 0, 0}));
    CHECK(as_the_tree({{0, 8}, {0, 0}, {0, 0}, {0, 0}}, 8, 37, {0, 0, 2, 2}));
}

TEST_CASE("collectives/hierarchical: lanes that are no run on a host are declined, or added in the order of hosts",
          "[collectives]") {
    const auto on = in_turns(6, 2);
    const auto runs = collectives::deal_lanes(6, 12);
    CHECK_FALSE(collectives::keeps_lane_tree(runs, on));
    CHECK(collectives::keeps_lane_tree(runs, in_blocks(6, 2)));
    CHECK_THROWS_WITH(collectives::hierarchical_sum(0, runs, 10, on),
                      Catch::Contains("no single run; number the ranks host by host"));
    const auto regrouped = collectives::hosts_in_order(on);
    std::vector<std::vector<long>> data(6, std::vector<long>(10));
    for (std::size_t rank = 0; rank < 6; ++rank)
        for (std::size_t i = 0; i < 10; ++i) data[rank][i] = static_cast<long>((rank + 1) * (i + 1));
    const auto all = whole(regrouped, 10, on, collectives::between_hosts::tree);
    collectives::simulate<long>(all, data);
    for (const auto& one : data)
        for (std::size_t i = 0; i < 10; ++i) CHECK(one[i] == static_cast<long>(21 * (i + 1)));
    // Over the link of each of the two hosts half of the vector goes in each half of the sum.
    const auto many = whole(regrouped, 960, on, collectives::between_hosts::tree);
    CHECK(over_the_link(many, on) == 960);
    CHECK_FALSE(collectives::by_hosts_sum(0, 960, on).sum.invariant());
    CHECK(collectives::by_hosts_sum(0, 960, on).sum.elements() == 960);
    CHECK(collectives::hosts_in_order(hosts_of_ranks{0, 0, 0, 3}) ==
          std::vector<block>{{0, 1}, {1, 2}, {2, 4}, {4, 8}});
}

TEST_CASE("collectives/hierarchical: elements over the link of a host, against flat schedules", "[collectives]") {
    using enum collectives::between_hosts;
    const std::size_t n = 16 * 64 * 3;
    const auto even = in_blocks(16, 4);  // 4 hosts of 4 ranks
    CHECK(in_levels(16, n, even) == 2 * n * 3 / 4);
    CHECK(in_levels(16, n, even, doubling) == 2 * n);
    CHECK(flat(collectives::tree_all_reduce{16}, n, even) == 2 * n * 3 / 4);  // halving from distance 1 is a hierarchy
    CHECK(flat(collectives::doubling_all_reduce{16}, n, even) == 4 * 2 * n);  // every rank sends everything
    CHECK(flat(collectives::halving_doubling_all_reduce{}, n, even) ==
          4 * 2 * n * 3 / 4);  // from the largest distance: each rank three quarters
    CHECK(flat(collectives::ring_all_reduce{}, n, even) == 2 * n * 15 / 16);  // one rank of a host sends on
    const auto turns = in_turns(16, 4);  // the same hosts, ranks dealt to them in turns
    CHECK(flat(collectives::ring_all_reduce{}, n, turns) == 4 * 2 * n * 15 / 16);
    CHECK(flat(collectives::tree_all_reduce{16}, n, turns) == 4 * 2 * n * 3 / 4);
    CHECK(over_the_link(whole(collectives::hosts_in_order(turns), n, turns, tree), turns) == 2 * n * 3 / 4);
    const auto thirds = in_blocks(12, 4);  // 3 hosts of 4 ranks
    CHECK(in_levels(12, n, thirds) == 2 * n * 2 / 3);
    CHECK(flat(collectives::tree_all_reduce{12}, n, thirds) > in_levels(12, n, thirds));
    const auto odd = in_blocks(12, 3);  // 4 hosts of 3 ranks, of which each holds several nodes of the tree
    CHECK(in_levels(48, n, odd) < flat(collectives::tree_all_reduce{48}, n, odd));
    CHECK(in_levels(48, n, odd) < flat(collectives::halving_doubling_all_reduce{}, n, odd));
}
