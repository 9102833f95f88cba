// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/train/engine/deal.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <numeric>
#include <vector>

namespace {

namespace parallel = lockstep::parallel;
using lockstep::partition::grid;
using lockstep::train::deal;

/// The rule of tensor::lane_begin() in other words: as many lanes as can have `least` rows, spread over all lanes; they
/// share the rows.
std::vector<std::size_t> expected(std::size_t rows, std::size_t lanes, std::size_t least) {
    std::vector<std::size_t> out(lanes);
    if (rows < least) {
        out.back() = rows;
        return out;
    }
    const std::size_t filled = std::min(lanes, rows / least);
    for (std::size_t k = 1; k <= filled; ++k)
        out[(k * lanes + filled - 1) / filled - 1] = parallel::split(rows, filled, k - 1).size();
    return out;
}

std::vector<std::size_t> lengths_of(const deal& of) { return {of.lengths().begin(), of.lengths().end()}; }

}  // namespace

TEST_CASE("train/deal: no lane with rows has fewer than the least, for all small rows, lanes, ranks and least",
          "[train]") {
    for (std::size_t lanes = 1; lanes <= 9; ++lanes)
        for (std::size_t least = 1; least <= 5; ++least)
            for (std::size_t rows = 0; rows <= 4 * lanes + 20; ++rows) {
                INFO(rows << " rows, " << lanes << " lanes, at least " << least);
                const auto right = expected(rows, lanes, least);
                std::vector<std::size_t> all;
                for (std::size_t ranks = 1; ranks <= lanes; ++ranks) {
                    std::size_t before = 0;
                    for (std::size_t rank = 0; rank < ranks; ++rank) {
                        const grid on{.rank = rank, .ranks = ranks, .shards = 1, .lanes = lanes};
                        deal here{on};
                        here.whole(rows, least);
                        REQUIRE(lengths_of(here) == right);
                        REQUIRE(here.rows() == rows);
                        // What a rank reads is what its lanes have, and ranks have all rows in their order.
                        const auto own = deal::own_rows(rows, on, least);
                        REQUIRE(own.first == before);
                        REQUIRE(own.size() == here.own().rows());
                        REQUIRE((own.empty() || own.first == here.own().first_row()));
                        before = own.last;
                    }
                    REQUIRE(before == rows);
                }
                REQUIRE(std::accumulate(right.begin(), right.end(), std::size_t{0}) == rows);
                for (const std::size_t length : right) REQUIRE((length == 0 || length >= least || rows < least));
                // Where all lanes have enough, or nothing is asked for, they are as before: equal but for one row.
                if (rows / lanes >= least || least == 1)
                    for (std::size_t lane = 0; lane < lanes; ++lane)
                        REQUIRE(right[lane] == parallel::split(rows, lanes, lane).size());
            }
}

TEST_CASE(
    "train/deal: a rank has room for its part of any minibatch up to a full one, and no more than one of them needs",
    "[train]") {
    for (std::size_t lanes = 1; lanes <= 9; ++lanes)
        for (std::size_t least = 1; least <= 5; ++least)
            for (std::size_t batch = lanes * least; batch <= lanes * least + 12; ++batch)
                for (std::size_t ranks = 1; ranks <= lanes; ++ranks) {
                    std::size_t most = 0;
                    for (std::size_t rank = 0; rank < ranks; ++rank)
                        for (std::size_t rows = least; rows <= batch; ++rows)
                            most = std::max(
                                most,
                                deal::own_rows(rows, {.rank = rank, .ranks = ranks, .shards = 1, .lanes = lanes}, least)
                                    .size());
                    INFO("batch " << batch << ", " << lanes << " lanes, at least " << least << ", " << ranks
                                  << " ranks");
                    REQUIRE(deal::capacity(batch, {.rank = 0, .ranks = ranks, .shards = 1, .lanes = lanes}, least) ==
                            most);
                }
}

TEST_CASE("train/deal: rows that ranks brought stay on their ranks", "[train]") {
    deal here{{.rank = 1, .ranks = 2, .shards = 1, .lanes = 4}};
    here.brought(std::vector<std::size_t>{1, 3});
    CHECK(lengths_of(here) == std::vector<std::size_t>{0, 1, 1, 2});
    here.brought(std::vector<std::size_t>{2, 2});
    CHECK(lengths_of(here) == std::vector<std::size_t>{1, 1, 1, 1});
}

TEST_CASE("train/deal: no rank gets more rows of fewer than its capacity, also where ranks share workers", "[train]") {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks)
        for (std::size_t lanes = ranks; lanes <= 20; lanes += 3)
            for (std::size_t workers = 0; workers <= lanes; ++workers) {
                grid on{.rank = 0, .ranks = ranks, .shards = 1, .lanes = lanes};
                try {
                    if (workers > 0) lockstep::partition::deal_workers(on, workers);
                } catch (const lockstep::core::error&) {
                    continue;
                }
                for (const std::size_t least : {1UL, 2UL, 3UL})
                    for (const std::size_t batch : {lanes * least, lanes * least + 5, 3 * lanes + 1}) {
                        const std::size_t most = deal::capacity(batch, on, least);
                        for (std::size_t rows = 0; rows <= batch; ++rows)
                            for (on.rank = 0; on.rank < ranks; ++on.rank)
                                REQUIRE(deal::own_rows(rows, on, least).size() <= most);
                        on.rank = 0;
                    }
            }
}
