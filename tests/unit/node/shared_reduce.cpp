// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/node/shared_reduce.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/collectives/verify.hpp"
#include "unit/node/shared_ranks.hpp"

namespace collectives = lockstep::collectives;
namespace node = lockstep::node;
namespace core = lockstep::core;
using lockstep::parallel::block;
using namespace shared_ranks;

namespace {

/// Bytes equal to those of the schedule over messages on every rank, some times over.
template <class T>
void compare_all_reduce(std::size_t ranks, std::size_t lanes, std::size_t n, node::shared_route route, int threads) {
    INFO(ranks << " ranks, " << lanes << " lanes, " << n << " elements, route " << int(route) << ", " << threads
               << " threads");
    constexpr std::uint32_t steps = 5;
    const collectives::tree_all_reduce over_messages{lanes};
    std::vector<collectives::schedule> programs;
    for (std::size_t rank = 0; rank < ranks; ++rank) programs.push_back(over_messages(rank, ranks, n));
    std::vector<std::vector<std::vector<T>>> expected(steps);
    for (std::uint32_t step = 0; step < steps; ++step) {
        for (std::size_t rank = 0; rank < ranks; ++rank)
            expected[step].push_back(values<T>(rank, over_messages.data_size(rank, ranks, n), step));
        collectives::simulate<T>(programs, expected[step]);
    }
    const std::size_t vectors = most_vectors(ranks, lanes);
    shared_memory memory{ranks,
                         node::shared_parts::footprint(vectors * n * sizeof(T)) * 3 + sizeof(node::shared_signal)};
    std::vector<char> right(ranks, 1);
    on_ranks(ranks, [&](std::size_t rank) {
        auto parts = memory.of(rank);
        const auto data = parts.reserve<T>(vectors * n);
        auto sum = node::shared_all_reduce<T>(parts, lanes, data, n, {threads}, route);
        for (std::uint32_t step = 0; step < steps; ++step) {
            const auto mine = values<T>(rank, over_messages.data_size(rank, ranks, n), step);
            std::copy(mine.begin(), mine.end(), parts.mine(data).begin());
            sum.start();
            if (step % 2 == 1)
                while (!sum.poll()) std::this_thread::yield();
            sum.finish();
            right[rank] = right[rank] && !sum.running() &&
                          same_bits<T>(parts.mine(data).first(n), std::span<const T>{expected[step][rank]}.first(n));
        }
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        INFO("rank " << rank);
        REQUIRE(right[rank]);
    }
}

}  // namespace

TEST_CASE("node/shared_reduce: the bits of the tree over messages", "[node]") {
    for (const auto route : {node::shared_route::automatic, node::shared_route::strips, node::shared_route::copies})
        for (std::size_t ranks = 1; ranks <= 8; ++ranks)
            for (const std::size_t lanes : {ranks, std::size_t{8}, std::size_t{13}, std::size_t{64}})
                for (const std::size_t n : {0U, 1U, 7U, 17U, 1009U, 3001U}) {
                    compare_all_reduce<float>(ranks, lanes, n, route, 1);
                    if (n % 2 == 1) compare_all_reduce<double>(ranks, lanes, n, route, 1);
                }
}

TEST_CASE("node/shared_reduce: threads of a rank do not change a bit", "[node]") {
    for (const std::size_t ranks : {2U, 3U})
        for (const int threads : {1, 2, 3}) {
            compare_all_reduce<float>(ranks, 8, 100'003, node::shared_route::strips, threads);
            compare_all_reduce<double>(ranks, 8, 100'003, node::shared_route::copies, threads);
        }
}

TEST_CASE("node/shared_reduce: more than sixteen ranks", "[node]") {
    for (const std::size_t ranks : {17U, 33U})
        compare_all_reduce<float>(ranks, ranks, 5003, node::shared_route::strips, 1);
}

TEST_CASE("node/shared_reduce: strips of the sum, and the gather of strips", "[node]") {
    for (std::size_t ranks = 1; ranks <= 6; ++ranks)
        for (const std::size_t n : {0U, 5U, 1003U}) {
            INFO(ranks << " ranks, " << n << " elements");
            const std::size_t lanes = 8 + ranks % 2;
            const auto runs = collectives::deal_lanes(ranks, lanes);
            const auto strips = collectives::tree_strips(runs, n);
            const std::size_t vectors = most_vectors(ranks, lanes);
            std::vector<collectives::schedule> programs;
            std::vector<std::vector<float>> expected;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                programs.push_back(collectives::tree_reduce_scatter(rank, runs, n, strips));
                expected.push_back(values<float>(rank, collectives::tree_data_size(runs[rank], lanes, n), 1));
            }
            collectives::simulate<float>(programs, expected);
            shared_memory memory{
                ranks, node::shared_parts::footprint(vectors * n * sizeof(float)) + 2 * sizeof(node::shared_signal)};
            std::vector<char> right(ranks, 1);
            on_ranks(ranks, [&](std::size_t rank) {
                auto parts = memory.of(rank);
                const auto data = parts.reserve<float>(vectors * n);
                auto sum = node::shared_reduce_scatter<float>(parts, runs, strips, data, n);
                auto gather = node::shared_all_gather<float>(parts, strips, data, n);
                const std::span<float> mine = parts.mine(data);
                const auto before = values<float>(rank, collectives::tree_data_size(runs[rank], lanes, n), 1);
                for (int turn = 0; turn < 3; ++turn) {
                    std::copy(before.begin(), before.end(), mine.begin());
                    sum.run();
                    const block own = strips[rank];
                    right[rank] =
                        right[rank] && same_bits<float>(mine.subspan(own.first, own.size()),
                                                        std::span{expected[rank]}.subspan(own.first, own.size()));
                    // Nothing else of a rank's data is touched.
                    for (std::size_t i = 0; i < before.size(); ++i)
                        right[rank] = right[rank] && ((i >= own.first && i < own.last) || mine[i] == before[i]);
                    gather.run();
                    for (std::size_t other = 0; other < ranks; ++other)
                        right[rank] =
                            right[rank] && same_bits<float>(mine.subspan(strips[other].first, strips[other].size()),
                                                            std::span{expected[other]}.subspan(strips[other].first,
                                                                                               strips[other].size()));
                }
            });
            CHECK(std::count(right.begin(), right.end(), 0) == 0);
        }
}

TEST_CASE("node/shared_reduce: many calls of operations of several sizes in flight, with ranks that are late",
          "[node]") {
    const std::size_t ranks = 4;
    const std::vector<std::size_t> sizes{1, 16, 1000, 30'000};
    std::size_t bytes = 0;
    for (const std::size_t n : sizes)
        bytes += node::shared_parts::footprint(n * sizeof(float)) + node::shared_operation<float>::overhead(1, n);
    shared_memory memory{ranks, bytes};
    std::vector<char> right(ranks, 1);
    on_ranks(ranks, [&](std::size_t rank) {
        auto parts = memory.of(rank);
        std::vector<lockstep::tensor::slice<float>> data;
        std::vector<node::shared_operation<float>> sums;
        for (const std::size_t n : sizes) {
            data.push_back(parts.reserve<float>(n));
            sums.push_back(node::shared_all_reduce<float>(parts, ranks, data.back(), n));
        }
        for (std::size_t turn = 0; turn < 1000; ++turn) {
            for (std::size_t k = 0; k < sums.size(); ++k) {
                const std::size_t which = (k + rank) % sums.size();
                if (which == 3 && turn % 50 != 0) continue;
                const auto mine = parts.mine(data[which]);
                for (std::size_t i = 0; i < mine.size(); ++i)
                    mine[i] = static_cast<float>((rank + 1) * (turn + i + which));
                sums[which].start();
            }
            if (turn % 100 == rank) std::this_thread::sleep_for(std::chrono::milliseconds{2});
            for (std::size_t k = 0; k < sums.size(); ++k) {
                const std::size_t which = (2 * rank + 3 * k) % sums.size();
                if (which == 3 && turn % 50 != 0) continue;
                sums[which].finish();
                const auto mine = parts.mine(data[which]);
                for (std::size_t i = 0; i < mine.size(); ++i)
                    right[rank] = right[rank] && mine[i] == static_cast<float>(10 * (turn + i + which));
            }
        }
    });
    CHECK(std::count(right.begin(), right.end(), 0) == 0);
}

TEST_CASE("node/shared_reduce: the size decides the route, as stated memory suffices", "[node]") {
    for (const std::size_t n : {std::size_t{1}, std::size_t{100}, std::size_t{10'000}, std::size_t{1'000'000}}) {
        const std::size_t bytes =
            node::shared_parts::footprint(n * sizeof(float)) + node::shared_operation<float>::overhead(1, n);
        for (const bool crowded : {false, true}) {
            shared_memory memory{2, bytes, crowded};
            auto parts = memory.of(0);
            const auto data = parts.reserve<float>(n);
            const auto sum = node::shared_all_reduce<float>(parts, 2, data, n);
            CHECK(sum.copies() == (crowded && n <= 100));
        }
    }
}

TEST_CASE("node/shared_reduce: misuse is an error", "[node]") {
    shared_memory memory{2, 4096};
    auto parts = memory.of(0);
    const auto data = parts.reserve<float>(100);
    CHECK_THROWS_AS(parts.reserve<float>(1000), core::error);
    CHECK_THROWS_AS(node::shared_all_reduce<float>(parts, 2, data, 101), core::error);
    // Rank 1 of 2 has the lanes 1 and 2 of 3, in two nodes.
    CHECK_THROWS_AS(node::shared_all_reduce<float>(parts, 3, data, 100), core::error);
    CHECK_THROWS_AS(node::shared_reduce_scatter<float>(parts, collectives::deal_lanes(3, 3),
                                                       collectives::tree_strips(3, 3, 10), data, 10),
                    core::error);
    const auto refused = [&](std::vector<block> strips) -> std::string {
        try {
            (void)node::shared_all_gather<float>(parts, strips, data, 100);
        } catch (const core::error& failure) {
            return failure.what();
        }
        return {};
    };
    const std::string head = "lockstep: strips of 100 elements: one from ",
                      remedy = "; give each element to exactly one rank";
    CHECK(refused({{0, 50}, {51, 100}}) == head + "51 to 100 follows what ends at 50" + remedy);
    CHECK(refused({{50, 100}, {0, 60}}) == head + "50 to 100 follows what ends at 60" + remedy);
    CHECK(refused({{0, 50}, {50, 101}}) == head + "100 to 100 follows what ends at 101" + remedy);
    CHECK(refused({{0, 50}, {50, 99}}) == head + "100 to 100 follows what ends at 99" + remedy);
    CHECK(refused({{100, 0}, {0, 100}}) == head + "100 to 0 follows what ends at 100" + remedy);
    CHECK(refused({{50, 100}, {0, 50}}).empty());
    CHECK(refused({{7, 7}, {0, 100}}).empty());
    auto sum = node::shared_all_reduce<float>(parts, 2, data, 100);
    sum.start();
    CHECK_THROWS_AS(sum.start(), core::error);
    CHECK_FALSE(sum.poll());

    // Ranks that make different operations.
    shared_memory other{2, 4096};
    std::vector<char> thrown(2, 0);
    on_ranks(2, [&](std::size_t rank) {
        auto mine = other.of(rank);
        const auto numbers = mine.reserve<float>(100);
        auto wrong = node::shared_all_reduce<float>(mine, 2, numbers, rank == 0 ? 100 : 90);
        try {
            wrong.run();
        } catch (const core::error&) {
            thrown[rank] = 1;
        }
        for (const auto& again : {+[](decltype(wrong)& of) { (void)of.poll(); },
                                  +[](decltype(wrong)& of) { of.finish(); }, +[](decltype(wrong)& of) { of.start(); }})
            try {
                again(wrong);
            } catch (const core::error&) {
                ++thrown[rank];
            }
    });
    CHECK(thrown == std::vector<char>{4, 4});
}
