// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/all_to_all.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "unit/collectives/rank_counts.hpp"

namespace collectives = lockstep::collectives;

TEST_CASE("collectives/all_to_all: every block arrives, for every number of ranks", "[collectives]") {
    for (const std::size_t ranks : rank_counts()) {
        for (const std::size_t largest : {0U, 1U, 2U, 7U, 64U}) {
            if (ranks > 64 && (largest != 1 || ranks > 256)) continue;  // each rank reads the table of all
            INFO(ranks << " ranks, blocks of up to " << largest);
            std::vector<std::size_t> counts(ranks * ranks);
            for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = (i * 2654435761U >> 7) % (largest + 1);
            std::vector<collectives::schedule> programs;
            std::vector<std::vector<std::uint32_t>> data;
            const auto value = [&](std::size_t from, std::size_t to, std::size_t i) {
                return static_cast<std::uint32_t>(1 + (from * ranks + to) * 64 + i);
            };
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                programs.push_back(collectives::all_to_all(rank, ranks, counts));
                const collectives::exchange_layout layout{rank, ranks, counts};
                data.emplace_back(layout.data_size());
                for (std::size_t to = 0; to < ranks; ++to)
                    for (std::size_t i = 0; i < counts[rank * ranks + to]; ++i)
                        data.back()[layout.outgoing(to).first + i] = value(rank, to, i);
            }
            const auto sent = collectives::simulate<std::uint32_t>(programs, data);
            bool right = true;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                const collectives::exchange_layout layout{rank, ranks, counts};
                collectives::traffic expected;
                for (std::size_t peer = 0; peer < ranks; ++peer) {
                    const std::size_t out = counts[rank * ranks + peer];
                    if (peer != rank && out > 0) expected += {1, out};
                    right = right && layout.incoming(peer).size() == counts[peer * ranks + rank];
                    for (std::size_t i = 0; i < layout.incoming(peer).size(); ++i)
                        right = right && data[rank][layout.incoming(peer).first + i] == value(peer, rank, i);
                }
                right = right && sent[rank] == expected;
            }
            REQUIRE(right);
        }
    }
}

TEST_CASE("collectives/all_to_all: a table of the wrong size is refused", "[collectives]") {
    const std::vector<std::size_t> counts(8);
    CHECK_THROWS_AS(collectives::all_to_all(0, 3, counts), lockstep::core::error);
    CHECK_THROWS_AS(collectives::all_to_all(2, 2, std::vector<std::size_t>(4)), lockstep::core::error);
}
