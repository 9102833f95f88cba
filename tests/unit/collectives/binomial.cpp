// SPDX-License-Identifier: BSD-3-Clause
#include "reference/binomial.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "unit/collectives/rank_counts.hpp"

namespace collectives = lockstep::collectives;

TEST_CASE("collectives/binomial: every root, number of ranks and size", "[collectives]") {
    for (const std::size_t ranks : rank_counts())
        for (const std::size_t root : {std::size_t{0}, ranks / 3, ranks - 1})
            for (const std::size_t n : {0U, 1U, 7U, 64U}) {
                INFO(ranks << " ranks, root " << root << ", " << n << " elements");
                std::vector<collectives::schedule> down;
                std::vector<collectives::schedule> up;
                std::vector<std::vector<long>> own(ranks, std::vector<long>(n));
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    down.push_back(collectives::binomial_broadcast(rank, ranks, n, root));
                    up.push_back(collectives::binomial_reduce(rank, ranks, n, root));
                    for (std::size_t i = 0; i < n; ++i) own[rank][i] = static_cast<long>((rank + 1) * (i + 3));
                }
                auto data = own;
                collectives::traffic all;
                for (const auto& one : collectives::simulate<long>(down, data)) all += one;
                bool right = all.elements == (ranks - 1) * n;
                for (const auto& one : data) right = right && one == own[root];
                REQUIRE(right);
                data = own;
                const auto sent = collectives::simulate<long>(up, data);
                for (std::size_t rank = 0; rank < ranks; ++rank)
                    right = right && sent[rank].elements == (rank == root ? 0 : n);
                for (std::size_t i = 0; i < n; ++i)
                    right = right && data[root][i] == static_cast<long>(ranks * (ranks + 1) / 2 * (i + 3));
                REQUIRE(right);
            }
}
