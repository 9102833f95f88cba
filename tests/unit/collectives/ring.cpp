// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/ring.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "unit/collectives/rank_counts.hpp"

namespace collectives = lockstep::collectives;
using lockstep::parallel::block;

namespace {

std::vector<std::vector<long>> vectors(std::size_t ranks, std::size_t n) {
    std::vector<std::vector<long>> out(ranks, std::vector<long>(n));
    for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < n; ++i) out[rank][i] = static_cast<long>((rank + 1) * (i + 3));
    return out;
}

long sum_of(std::size_t ranks, std::size_t i) { return static_cast<long>(ranks * (ranks + 1) / 2 * (i + 3)); }

}  // namespace

TEST_CASE("collectives/ring: the sum is right for every number of ranks and size", "[collectives]") {
    for (const std::size_t ranks : rank_counts()) {
        for (const std::size_t n : {0U, 1U, 2U, 7U, 64U, 1000U}) {
            if (takes_long(ranks, n, 7)) continue;
            INFO(ranks << " ranks, " << n << " elements");
            std::vector<collectives::schedule> scatter;
            std::vector<collectives::schedule> reduce;
            std::vector<block> strips(ranks);
            for (std::size_t rank = 0; rank < ranks; ++rank)
                strips[rank] = lockstep::parallel::split(n, ranks, ranks - 1 - rank, 3);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                scatter.push_back(collectives::ring_reduce_scatter(rank, strips));
                reduce.push_back(collectives::ring_all_reduce{}(rank, ranks, n));
            }
            auto data = vectors(ranks, n);
            const auto sent = collectives::simulate<long>(scatter, data);
            bool right = true;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                right = right && sent[rank].elements == n - strips[rank].size() && !scatter[rank].invariant();
                for (std::size_t i = strips[rank].first; i < strips[rank].last; ++i)
                    right = right && data[rank][i] == sum_of(ranks, i);
            }
            REQUIRE(right);

            data = vectors(ranks, n);
            const auto both = collectives::simulate<long>(reduce, data);
            for (std::size_t rank = 0; rank < ranks; ++rank)
                for (std::size_t i = 0; i < n; ++i) right = right && data[rank][i] == sum_of(ranks, i);
            REQUIRE(right);
            if (n % ranks == 0 && n > 0)
                for (const auto& one : both)
                    REQUIRE(one == collectives::traffic{2 * (ranks - 1), 2 * n * (ranks - 1) / ranks});
        }
    }
}

TEST_CASE("collectives/ring: all ranks get the same bits, and say that they depend on the number of ranks",
          "[collectives]") {
    CHECK_FALSE(collectives::ring_all_reduce::invariant);
    std::vector<collectives::schedule> programs;
    std::vector<std::vector<float>> data;
    for (std::size_t rank = 0; rank < 5; ++rank) {
        programs.push_back(collectives::ring_all_reduce{}(rank, 5, 33));
        data.emplace_back();
        for (std::size_t i = 0; i < 33; ++i) data.back().push_back(1.0F / static_cast<float>(3 * i + rank + 1));
    }
    collectives::simulate<float>(programs, data);
    for (std::size_t rank = 1; rank < 5; ++rank) CHECK(data[rank] == data[0]);
    CHECK_FALSE(programs[0].invariant());
}
