// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/tree.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "lockstep/core/random.hpp"
#include "unit/collectives/rank_counts.hpp"

namespace collectives = lockstep::collectives;
namespace core = lockstep::core;
namespace tensor = lockstep::tensor;
using lockstep::parallel::block;

namespace {

/// Values whose sum depends on the order of additions.
float lane_value(std::size_t lane, std::size_t element) {
    const core::random_stream numbers{7, core::purpose::user, static_cast<std::uint32_t>(lane)};
    return (numbers.uniform(2 * element) - 0.5F) * (numbers.word(2 * element + 1) % 3 == 0 ? 1000.0F : 1.0F);
}

std::vector<float> node_sum(const tensor::subtree& tree, std::size_t n) {
    std::vector<std::vector<float>> partial(tensor::tree_depth(tree.count), std::vector<float>(n));
    tensor::walk(
        tree.count,
        [&](std::size_t lane, std::size_t level) {
            for (std::size_t i = 0; i < n; ++i) partial[level][i] = lane_value(tree.first + lane, i);
        },
        [&](std::size_t level) {
            for (std::size_t i = 0; i < n; ++i) partial[level][i] += partial[level + 1][i];
        });
    return partial[0];
}

/// The definition of the tree, by recursion on lane numbers alone.
float by_definition(std::size_t first, std::size_t length, std::size_t total, std::size_t element) {
    if (length == 1) return lane_value(first, element);
    const float left = by_definition(first, length / 2, total, element);
    return first + length / 2 < total ? left + by_definition(first + length / 2, length / 2, total, element) : left;
}

bool same_bits(const float* a, const float* b, std::size_t n) {
    return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}

struct outcome {
    std::vector<collectives::schedule> programs;
    std::vector<collectives::traffic> sent;
    bool right = true;
};

outcome run(const std::vector<block>& lanes, std::size_t total, std::size_t n, const std::vector<block>& strips,
            collectives::tree_route route) {
    outcome out;
    std::vector<std::vector<float>> data;
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
        out.programs.push_back(collectives::tree_reduce_scatter(rank, lanes, n, strips, route));
        data.emplace_back();
        for (const auto& tree : tensor::cover(lanes[rank], total)) {
            const auto sum = node_sum(tree, n);
            data.back().insert(data.back().end(), sum.begin(), sum.end());
        }
        data.back().resize(collectives::tree_data_size(lanes[rank], total, n));
    }
    out.sent = collectives::simulate<float>(out.programs, data);
    const auto expected = node_sum({0, total}, n);
    for (std::size_t rank = 0; rank < lanes.size(); ++rank)
        out.right = out.right && same_bits(data[rank].data() + strips[rank].first, expected.data() + strips[rank].first,
                                           strips[rank].size());
    return out;
}

std::size_t total_elements(const std::vector<collectives::traffic>& sent) {
    std::size_t sum = 0;
    for (const auto& one : sent) sum += one.elements;
    return sum;
}

}  // namespace

TEST_CASE("collectives/tree: the walk of one rank is the tree over lane numbers", "[collectives]") {
    for (std::size_t total : {1U, 2U, 3U, 7U, 8U, 64U, 100U}) {
        const auto sum = node_sum({0, total}, 5);
        std::size_t length = 1;
        while (length < total) length *= 2;
        for (std::size_t i = 0; i < 5; ++i) CHECK(sum[i] == by_definition(0, length, total, i));
    }
}

TEST_CASE("collectives/tree: equal bits for every number of ranks, every size and every route", "[collectives]") {
    for (const std::size_t ranks : rank_counts()) {
        for (const std::size_t total : {ranks, std::size_t{8}, std::size_t{64}, std::size_t{100}}) {
            for (const std::size_t n : {0U, 1U, 2U, 7U, 64U, 1000U}) {
                if ((total == 8 && n > 64) || (ranks > 64 && (n != 7 || total == 64))) continue;
                const auto lanes = collectives::deal_lanes(ranks, total);
                const auto strips = collectives::tree_strips(ranks, total, n);
                std::size_t elements[2];
                for (const auto route : {collectives::tree_route::direct, collectives::tree_route::least}) {
                    INFO(ranks << " ranks, " << total << " lanes, " << n << " elements, route " << int(route));
                    const auto got = run(lanes, total, n, strips, route);
                    REQUIRE(got.right);
                    elements[route == collectives::tree_route::least] = total_elements(got.sent);
                    for (std::size_t rank = 0; rank < ranks; ++rank) {
                        REQUIRE(got.sent[rank] == got.programs[rank].sent());
                        if (route != collectives::tree_route::direct) continue;
                        const std::size_t nodes = tensor::cover(lanes[rank], total).size();
                        std::size_t owners = 0;
                        for (std::size_t other = 0; other < ranks; ++other)
                            owners += other != rank && !strips[other].empty();
                        REQUIRE(got.sent[rank] ==
                                collectives::traffic{nodes * owners, nodes * (n - strips[rank].size())});
                        REQUIRE(got.programs[rank].rounds().size() <= 1);
                    }
                }
                REQUIRE(elements[1] <= elements[0]);
            }
        }
    }
}

TEST_CASE("collectives/tree: aligned lanes on a power of two of ranks are recursive halving", "[collectives]") {
    for (std::size_t ranks = 1, rounds = 0; ranks <= 64; ranks *= 2, ++rounds) {
        for (const std::size_t total : {ranks, 4 * ranks}) {
            const std::size_t n = 16 * 64 * 3;
            const auto lanes = collectives::deal_lanes(ranks, total);
            REQUIRE(collectives::is_halving(lanes));
            const auto got =
                run(lanes, total, n, collectives::tree_strips(ranks, total, n), collectives::tree_route::automatic);
            CHECK(got.right);
            for (const auto& program : got.programs) {
                CHECK(program.sent() == collectives::traffic{rounds, n * (ranks - 1) / ranks});
                CHECK(program.received() == program.sent());
                CHECK(program.added() == n * (ranks - 1) / ranks);
                CHECK(program.work_size() == (ranks == 1 ? 0 : n / 2));
                CHECK(program.invariant());
            }
        }
    }
    CHECK_FALSE(collectives::is_halving(collectives::deal_lanes(3, 9)));
    CHECK_FALSE(collectives::is_halving(collectives::deal_lanes(4, 12)));
    CHECK_FALSE(collectives::is_halving(collectives::deal_lanes(4, 2)));
}

TEST_CASE("collectives/tree: any deal of lanes and any strips", "[collectives]") {
    const std::vector<block> lanes{{5, 9}, {0, 0}, {0, 5}, {12, 13}, {9, 12}};
    const std::vector<block> strips{{30, 37}, {0, 11}, {0, 0}, {37, 37}, {11, 30}};
    for (const auto route :
         {collectives::tree_route::automatic, collectives::tree_route::direct, collectives::tree_route::least})
        CHECK(run(lanes, 13, 37, strips, route).right);
    const std::vector<block> one_owner{{0, 0}, {0, 0}, {0, 0}, {0, 37}, {0, 0}};
    for (const auto route : {collectives::tree_route::direct, collectives::tree_route::least})
        CHECK(run(lanes, 13, 37, one_owner, route).right);
    const std::vector<block> idle{{0, 0}, {0, 8}, {0, 0}};
    const std::vector<block> thirds{{0, 10}, {10, 20}, {20, 37}};
    for (const auto route : {collectives::tree_route::direct, collectives::tree_route::least})
        CHECK(run(idle, 8, 37, thirds, route).right);
}

TEST_CASE("collectives/tree: scratch is bounded by what the other ranks hold of a strip", "[collectives]") {
    for (std::size_t ranks = 2; ranks <= 64; ++ranks) {
        const std::size_t n = 16 * ranks;
        const auto lanes = collectives::deal_lanes(ranks, 100);
        std::size_t nodes = 0;
        for (const auto& run : lanes) nodes += tensor::cover(run, 100).size();
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::size_t others = nodes - tensor::cover(lanes[rank], 100).size();
            CHECK(collectives::tree_reduce_scatter(rank, lanes, n, collectives::tree_strips(lanes, n),
                                                   collectives::tree_route::direct)
                      .work_size() == 16 * others);
            CHECK(collectives::tree_reduce_scatter(rank, lanes, n, collectives::tree_strips(lanes, n),
                                                   collectives::tree_route::least)
                      .work_size() <= n * tensor::tree_depth(100));
        }
    }
}

TEST_CASE("collectives/tree: strips are cut at cache lines where there are enough elements", "[collectives]") {
    for (const auto& strip : collectives::tree_strips(8, 8, 1000)) {
        CHECK(strip.first % collectives::strip_grain == 0);
        CHECK(strip.size() >= 112);
    }
    CHECK(collectives::tree_strips(4, 8, 64)[1] == block{32, 48});
    CHECK(collectives::tree_strips(3, 8, 48)[1] == block{16, 32});
}

TEST_CASE("collectives/tree: bad deals are refused", "[collectives]") {
    const std::vector<block> strips{{0, 4}, {4, 8}};
    const auto build = [&](std::vector<block> lanes, std::size_t n) {
        return collectives::tree_reduce_scatter(0, lanes, n, strips);
    };
    CHECK_NOTHROW(build({{0, 1}, {1, 2}}, 8));
    CHECK_THROWS_AS(build({{0, 2}, {1, 2}}, 8), core::error);
    CHECK_THROWS_AS(build({{0, 1}, {2, 3}}, 8), core::error);
    CHECK_THROWS_AS(build({{0, 0}, {0, 0}}, 8), core::error);
    CHECK_THROWS_AS(build({{0, 1}, {1, 2}}, 9), core::error);
    CHECK_THROWS_AS(build({{0, 1}}, 8), core::error);
}
