// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/halving_doubling.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/verify.hpp"

namespace collectives = lockstep::collectives;
using lockstep::parallel::block;

namespace {

/// Whether the sum is right on all ranks, and the strips after the reduce-scatter are.
bool sums(std::size_t ranks, std::size_t n) {
    const auto value = [](std::size_t rank, std::size_t i) { return static_cast<long>((rank + 1) * (i + 3)); };
    const auto total = [&](std::size_t i) { return static_cast<long>(ranks * (ranks + 1) / 2 * (i + 3)); };
    std::vector<collectives::schedule> scatter, both;
    std::vector<std::vector<long>> data(ranks, std::vector<long>(n));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        scatter.push_back(collectives::halving_reduce_scatter(rank, ranks, n));
        both.push_back(collectives::halving_doubling_all_reduce{}(rank, ranks, n));
        for (std::size_t i = 0; i < n; ++i) data[rank][i] = value(rank, i);
    }
    auto again = data;
    const auto strips = collectives::halving_strips(ranks, n);
    const auto sent = collectives::simulate<long>(scatter, data);
    bool right = true;
    std::size_t covered = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = strips[rank].first; i < strips[rank].last; ++i) right = right && data[rank][i] == total(i);
        covered += strips[rank].size();
        right = right && sent[rank] == scatter[rank].sent() && (ranks == 1 || !both[rank].invariant());
    }
    collectives::simulate<long>(both, again);
    for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < n; ++i) right = right && again[rank][i] == total(i);
    return right && covered == n;
}

}  // namespace

TEST_CASE("collectives/halving_doubling: the sum is right for every number of ranks and size", "[collectives]") {
    CHECK_FALSE(collectives::halving_doubling_all_reduce::invariant);
    for (std::size_t ranks = 1; ranks <= 64; ++ranks)
        for (const std::size_t n : {0U, 1U, 7U, 64U, 1000U}) {
            INFO(ranks << " ranks, " << n << " elements");
            REQUIRE(sums(ranks, n));
        }
    for (const std::size_t ranks : {128U, 256U, 1000U}) CHECK(sums(ranks, 301));
}

TEST_CASE("collectives/halving_doubling: 2 log2(p) messages and 2n(p-1)/p elements on a power of two of ranks",
          "[collectives]") {
    const std::size_t n = 1024;
    for (std::size_t ranks = 1, rounds = 0; ranks <= 64; ranks *= 2, ++rounds)
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const auto program = collectives::halving_doubling_all_reduce{}(rank, ranks, n);
            CHECK(program.sent() == collectives::traffic{2 * rounds, 2 * n * (ranks - 1) / ranks});
            CHECK(program.added() == n * (ranks - 1) / ranks);
        }
    // Three ranks: rank 1 gives its vector to rank 0, and gets the sum from it.
    CHECK(collectives::halving_doubling_all_reduce{}(1, 3, n).sent() == collectives::traffic{1, n});
    CHECK(collectives::halving_doubling_all_reduce{}(0, 3, n).sent() == collectives::traffic{3, 2 * n});
    CHECK(collectives::halving_doubling_all_reduce{}(2, 3, n).sent() == collectives::traffic{2, n});
}
