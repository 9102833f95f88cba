// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/all_reduce.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "unit/collectives/rank_counts.hpp"

namespace collectives = lockstep::collectives;

namespace {

float part(std::size_t lane, std::size_t i) {
    return 1.0F / static_cast<float>(7 * i + 3 * lane + 1) - (lane % 3 == 0 ? 100.0F : 0.1F);
}

float node(std::size_t first, std::size_t length, std::size_t total, std::size_t i) {
    if (length == 1) return part(first, i);
    const float left = node(first, length / 2, total, i);
    return first + length / 2 < total ? left + node(first + length / 2, length / 2, total, i) : left;
}

}  // namespace

TEST_CASE("collectives/all_reduce: one result for every number of ranks", "[collectives]") {
    for (const std::size_t lanes : {8U, 13U}) {
        for (const std::size_t n : {0U, 1U, 7U, 100U}) {
            std::vector<float> expected(n);
            for (std::size_t i = 0; i < n; ++i) expected[i] = node(0, 16, lanes, i);
            for (const std::size_t ranks : rank_counts()) {
                if (takes_long(ranks, n, 7)) continue;
                INFO(ranks << " ranks, " << n << " elements, " << lanes << " lanes");
                const collectives::tree_all_reduce sum{.lanes = lanes};
                std::vector<collectives::schedule> programs;
                std::vector<std::vector<float>> data;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    programs.push_back(sum(rank, ranks, n));
                    data.emplace_back();
                    const auto run = lockstep::parallel::split(lanes, ranks, rank);
                    for (const auto& tree : lockstep::tensor::cover(run, lanes))
                        for (std::size_t i = 0; i < n; ++i)
                            data.back().push_back(node(tree.first, std::bit_ceil(tree.count), lanes, i));
                    data.back().resize(sum.data_size(rank, ranks, n));
                }
                collectives::simulate<float>(programs, data);
                bool right = true;
                for (auto& one : data) {
                    one.resize(n);
                    right = right && one == expected;
                }
                REQUIRE(right);
                REQUIRE(programs[0].invariant());
            }
        }
    }
}

TEST_CASE(
    "collectives/all_reduce: aligned lanes on a power of two of ranks move 2n(p-1)/p elements in 2 log2(p) messages",
    "[collectives]") {
    for (std::size_t ranks = 1, rounds = 0; ranks <= 64; ranks *= 2, ++rounds)
        for (std::size_t rank = 0; rank < ranks; ++rank)
            CHECK(collectives::tree_all_reduce{64}(rank, ranks, 2048).sent() ==
                  collectives::traffic{2 * rounds, 2 * 2048 * (ranks - 1) / ranks});
}
