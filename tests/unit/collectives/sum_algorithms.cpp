// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/sum_algorithms.hpp"

#include <catch2/catch.hpp>
#include <climits>
#include <cmath>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "lockstep/comm/flow.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace tensor = lockstep::tensor;
using collectives::sum_algorithm;
using lockstep::parallel::block;

namespace {

constexpr collectives::sum_algorithm all_algorithms[] = {
    collectives::sum_algorithm::tree, collectives::sum_algorithm::doubling, collectives::sum_algorithm::hierarchical,
    collectives::sum_algorithm::ring, sum_algorithm::halving_doubling};

std::vector<std::size_t> in_blocks(std::size_t ranks, std::size_t each) {
    std::vector<std::size_t> out;
    for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back(rank / each * each);
    return out;
}

/// 1 Gbit/s between hosts, messages of 50 us; 10 Gbit/s and 1 us inside.
collectives::cost_model cluster(std::vector<std::size_t> on) {
    return {.inside = {1e-6, 1e-10}, .between = {5e-5, 8e-9}, .seconds_per_added_byte = 1e-10, .on = std::move(on)};
}

}  // namespace

TEST_CASE("collectives/sum_algorithms: sums by every name, owned strips first, then shared", "[collectives]") {
    for (const std::size_t ranks : {1U, 2U, 3U, 5U, 8U, 12U})
        for (const std::size_t n : {0U, 1U, 37U, 192U})
            for (const auto algorithm : all_algorithms) {
                const std::size_t lanes = 13;
                const auto runs = collectives::deal_lanes(ranks, lanes);
                const auto on = in_blocks(ranks, 2);
                std::vector<collectives::schedule> sums, shares;
                std::vector<block> owned;
                std::vector<std::vector<long>> data;
                bool right = true;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    auto made = collectives::make_sum(algorithm, rank, runs, n, on);
                    right = right && made.sum.invariant() == collectives::keeps_lane_tree(algorithm);
                    // What tells it from a sum of another length, and is said of it where ranks wait.
                    right =
                        right && made.sum.elements() == n && (made.share.elements() == n || made.share.name().empty());
                    owned.push_back(made.owned);
                    sums.push_back(std::move(made.sum));
                    shares.push_back(std::move(made.share));
                    data.emplace_back();
                    for (const auto& node : tensor::cover(runs[rank], lanes))
                        for (std::size_t i = 0; i < n; ++i)
                            data.back().push_back(static_cast<long>(node.count * (i + 1)));
                }
                const auto total = [&](std::size_t i) { return static_cast<long>(lanes * (i + 1)); };
                collectives::simulate<long>(sums, data);
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    for (std::size_t i = owned[rank].first; i < owned[rank].last; ++i)
                        right = right && data[rank][i] == total(i);
                    data[rank].resize(n);
                }
                collectives::simulate<long>(shares, data);
                for (const auto& one : data)
                    for (std::size_t i = 0; i < n; ++i) right = right && one[i] == total(i);
                INFO(collectives::name_of(algorithm) << " on " << ranks << " ranks, " << n << " elements");
                REQUIRE(right);
            }
    for (const std::size_t rank : {0U, 1U})
        CHECK_THROWS_WITH(
            collectives::make_sum(collectives::sum_algorithm::ring, rank, std::vector<block>{{0, 1}, {0, 0}}, 4, {}),
            Catch::Contains("rank 1 of 2 has no lanes"));
}

TEST_CASE("collectives/sum_algorithms: doubling up to where its elements cost more than the tree's messages",
          "[collectives]") {
    // log2(p) L = n G (log2(p) - 2(p-1)/p) + additions n g (log2(p) - (p-1)/p)
    for (const std::size_t ranks : {4U, 8U, 64U}) {
        const auto model = cluster(in_blocks(ranks, 1));
        const double p = static_cast<double>(ranks), log2 = std::log2(p), part = (p - 1) / p;
        const double bytes = log2 * 5e-5 / (8e-9 * (log2 - 2 * part) + 1e-10 * (log2 - part));
        const auto table = collectives::choose_algorithms(collectives::deal_lanes(ranks, 64), 4, model);
        CHECK(table.at(static_cast<std::size_t>(0.99 * bytes)) == collectives::sum_algorithm::doubling);
        CHECK(table.at(static_cast<std::size_t>(1.01 * bytes)) == collectives::sum_algorithm::tree);
        CHECK(table.invariant());
        CHECK(collectives::algorithm_table::parse(table.text()) == table);
        // What owners do is done by all of them.
        CHECK(collectives::choose_algorithms(collectives::deal_lanes(ranks, 64), 4, model, 1e-6)
                  .at(static_cast<std::size_t>(0.5 * bytes)) == collectives::sum_algorithm::tree);
    }
    // Two ranks: the same elements in half the messages, up to where state of an optimizer on all ranks would matter.
    CHECK(collectives::choose_algorithms(collectives::deal_lanes(2, 8), 4, cluster({0, 1})).text() ==
          "doubling:0-65536;tree:65537-max");
    CHECK(collectives::choose_lane_sum(collectives::deal_lanes(2, 8), 4, cluster({0, 1}), 0).text() ==
          "doubling:0-65536;tree:65537-max");
    CHECK(collectives::choose_lane_sum(collectives::deal_lanes(4, 8), 4, cluster(in_blocks(4, 1)), 0) ==
          collectives::choose_algorithms(collectives::deal_lanes(4, 8), 4, cluster(in_blocks(4, 1))));
    CHECK(collectives::choose_lane_sum(collectives::deal_lanes(3, 8), 4, cluster({0, 1, 2}), 0).text() == "tree:0-max");
    CHECK_THROWS_WITH(
        collectives::make_lane_sum(collectives::sum_algorithm::doubling, 0, collectives::deal_lanes(3, 8), 4, {}),
        Catch::Contains("a sum by doubling over 8 lanes of 3 ranks; "));
    CHECK_THROWS_AS(
        collectives::make_lane_sum(collectives::sum_algorithm::ring, 0, collectives::deal_lanes(4, 8), 4, {}),
        lockstep::core::error);
    CHECK(collectives::choose_algorithms(collectives::deal_lanes(1, 8), 4, {}).text() == "tree:0-max");
    // Free messages: the tree, which adds less.
    CHECK(collectives::choose_algorithms(collectives::deal_lanes(4, 8), 4,
                                         {.inside = {}, .between = {0, 1e-9}, .seconds_per_added_byte = 1e-10})
              .text() == "tree:0-max");
}

TEST_CASE("collectives/sum_algorithms: in two levels where hosts with several ranks are not powers of two",
          "[collectives]") {
    const auto aligned = collectives::choose_algorithms(collectives::deal_lanes(16, 16), 4, cluster(in_blocks(16, 4)));
    CHECK(aligned.at(100'000'000) ==
          collectives::sum_algorithm::tree);  // the flat one is a hierarchy, and wins where prices are equal
    const auto odd = collectives::choose_algorithms(collectives::deal_lanes(12, 48), 4, cluster(in_blocks(12, 3)));
    CHECK(odd.at(100'000'000) == collectives::sum_algorithm::hierarchical);
    // Lanes of a host that are no run leave the hierarchy out.
    auto mixed = cluster({0, 1, 0, 1, 0, 1});
    CHECK_NOTHROW(collectives::choose_algorithms(collectives::deal_lanes(6, 12), 4, mixed));
    CHECK_THROWS_AS(
        collectives::make_sum(collectives::sum_algorithm::hierarchical, 0, collectives::deal_lanes(6, 12), 4, mixed.on),
        lockstep::core::error);
}

TEST_CASE("collectives/sum_algorithms: the least bucket has a twentieth of its time in messages", "[collectives]") {
    const auto model = cluster(in_blocks(4, 1));
    const auto runs = collectives::deal_lanes(4, 8);
    const std::size_t n = collectives::least_bucket(runs, 4, model);
    const auto share = [&](std::size_t of) {
        return 4 * 5e-5 / (4 * 5e-5 + static_cast<double>(of) * 4 * (2 * 8e-9 + 1e-10) * 0.75);
    };
    CHECK(share(n) <= 0.05);
    CHECK(share(n / 2) > 0.05);
    CHECK(collectives::least_bucket(collectives::deal_lanes(1, 8), 4, {}) == std::size_t{1} << 14U);
    CHECK(collectives::least_bucket(runs, 4, {.inside = {}, .between = {1, 1e-9}, .seconds_per_added_byte = 0}) ==
          std::size_t{1} << 22U);
    // Ranks of one host share memory, and little travels beside layers; two hosts are enough for the rule.
    CHECK(collectives::least_bucket(runs, 4, cluster({7, 7, 7, 7})) == collectives::usual_bucket);
    CHECK(collectives::least_bucket(runs, 4, cluster({7, 7, 7, 3})) != collectives::usual_bucket);
}

TEST_CASE("collectives/sum_algorithms: vectors beyond 2^31 elements, in messages that MPI can count", "[collectives]") {
    const std::size_t n = (std::size_t{1} << 33U) + 5;
    for (const auto algorithm : all_algorithms)
        for (const std::size_t ranks : {2U, 3U, 4U, 6U}) {
            const auto runs = collectives::deal_lanes(ranks, 6);
            std::vector<collectives::schedule> all;
            std::size_t longest = 0;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                auto made = collectives::make_sum(algorithm, rank, runs, n, in_blocks(ranks, 2));
                all.push_back(made.sum.then(made.share));
                CHECK(all.back().data_size() >= n);
                for (const auto& one : all.back().sends()) longest = std::max(longest, one.what.count);
            }
            CHECK_NOTHROW(collectives::verify(all));  // offsets and lengths fit together
            CHECK(longest > std::size_t{INT_MAX} / sizeof(float));
            // The pieces of the longest message hold all of its bytes, each fewer than an int can count.
            const comm::flow pieces{MPI_COMM_NULL, 0, comm::flow::largest_piece};
            const std::size_t bytes = longest * sizeof(float);
            CHECK(pieces.pieces(bytes) * comm::flow::largest_piece >= bytes);
            CHECK((pieces.pieces(bytes) - 1) * comm::flow::largest_piece < bytes);
        }
    static_assert(comm::flow::largest_piece <= INT_MAX && comm::flow::usual_piece <= comm::flow::largest_piece);
}
