// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/node/shared_strips.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "unit/node/shared_ranks.hpp"

namespace collectives = lockstep::collectives;
namespace node = lockstep::node;
namespace core = lockstep::core;
using lockstep::parallel::block;
using namespace shared_ranks;

namespace {

/// How a trainer's ranks may do it.
struct way {
    int threads = 1;
    node::shared_adding adding = node::shared_adding::with_update;
    std::size_t bytes = 0;  ///< of a part, at least
};

/// Steps of several groups at once: sum of the gradients, an update by the owner of each strip, its weights to all.
/// `groups` x `ranks` parts; group g has the parts g, g + groups, ... Equal bytes to those of the schedule over
/// messages.
template <class T>
void compare_steps(std::size_t groups, std::size_t ranks, std::size_t lanes, std::size_t n, const way& of = {}) {
    const bool ahead = of.adding == node::shared_adding::ahead;
    INFO(groups << " groups of " << ranks << " ranks, " << lanes << " lanes, " << n << " elements, " << of.threads
                << " threads, " << (ahead ? "added ahead, " : "") << of.bytes << " bytes");
    constexpr std::uint32_t steps = 4;
    const auto runs = collectives::deal_lanes(ranks, lanes);
    const auto strips = collectives::tree_strips(runs, n);
    std::vector<collectives::schedule> programs;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        programs.push_back(collectives::tree_reduce_scatter(rank, runs, n, strips));
    const auto gradient = [&](std::size_t part, std::uint32_t step) {
        return values<T>(part, collectives::tree_data_size(runs[part / groups], lanes, n), step);
    };
    // expected[group][step]: the weights.
    std::vector<std::vector<std::vector<T>>> expected(groups);
    for (std::size_t group = 0; group < groups; ++group) {
        std::vector<T> weights(n);
        for (std::uint32_t step = 0; step < steps; ++step) {
            std::vector<std::vector<T>> sums;
            for (std::size_t rank = 0; rank < ranks; ++rank) sums.push_back(gradient(rank * groups + group, step));
            collectives::simulate<T>(programs, sums);
            for (std::size_t rank = 0; rank < ranks; ++rank)
                for (std::size_t i = strips[rank].first; i < strips[rank].last; ++i) weights[i] -= sums[rank][i];
            expected[group].push_back(weights);
        }
    }
    // Weights begin somewhere in a cache line, as those of a bucket do.
    const std::size_t vectors = most_vectors(ranks, lanes), before = 128, offset = 5;
    shared_memory memory{groups * ranks,
                         std::max(of.bytes, before + node::shared_parts::footprint((offset + n) * sizeof(T)) +
                                                node::shared_parts::footprint(vectors * n * sizeof(T)))};
    std::vector<char> right(groups * ranks, 1);
    on_ranks(groups * ranks, [&](std::size_t part) {
        auto parts = memory.of(part);
        const std::size_t rank = part / groups, group = part % groups;
        node::shared_members members{&parts, {}, rank, parts.reserve<node::shared_signal>(1)};
        for (std::size_t other = 0; other < ranks; ++other) members.parts.push_back(other * groups + group);
        const auto weights = parts.mine(parts.reserve<T>(offset + n)).subspan(offset),
                   sums = parts.mine(parts.reserve<T>(vectors * n));
        node::shared_strips<T> average{members, runs, strips, n, {of.threads}, of.adding};
        const block own = strips[rank];
        for (std::uint32_t step = 0; step < steps; ++step) {
            // Weights and gradients of this rank change as soon as it may go on: a rank that reads them too late sees
            // other numbers.
            const auto mine = gradient(part, step);
            std::copy(mine.begin(), mine.end(), sums.begin());
            if (step == 1 && rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
            average.start_sum(sums);
            if (step % 2 == 1)
                while (!average.poll()) std::this_thread::yield();
            average.finish();
            std::vector<int> times(n);
            average.update(weights, [&](block piece, std::span<const T> sum) {
                for (std::size_t i = piece.first; i < piece.last; ++i) {
                    weights[i] -= sum[i - piece.first];
                    times[i] += sum.size() == piece.size() ? 1 : 2;
                }
            });
            for (std::size_t i = 0; i < n; ++i)
                right[part] = right[part] && times[i] == (i >= own.first && i < own.last ? 1 : 0);
            // Of a rank's gradients nothing is touched but its strip, and that only ahead of the update.
            for (std::size_t i = 0; i < mine.size(); ++i)
                right[part] = right[part] && ((ahead && i >= own.first && i < own.last) || sums[i] == mine[i]);
            average.start_share();
            average.finish();
            right[part] = right[part] && average.poll() && same_bits<T>(weights, expected[group][step]);
        }
    });
    for (std::size_t part = 0; part < right.size(); ++part) {
        INFO("part " << part);
        REQUIRE(right[part]);
    }
}

}  // namespace

TEST_CASE("node/shared_strips: sums and weights have the bits of the tree over messages", "[node]") {
    for (std::size_t ranks = 1; ranks <= 8; ++ranks)
        for (const std::size_t lanes : {std::size_t{8}, std::size_t{13}})
            for (const std::size_t n : {0U, 1U, 17U, 1009U})
                for (const auto adding : {node::shared_adding::with_update, node::shared_adding::ahead})
                    compare_steps<float>(1, ranks, lanes, n, {1, adding});
    for (const std::size_t n : {1U, 1009U}) compare_steps<double>(1, 3, 8, n);
}

TEST_CASE("node/shared_strips: strips of many pieces, within the caches and past them", "[node]") {
    for (const std::size_t bytes : {std::size_t{0}, lockstep::simd::beyond_caches})
        for (const std::size_t ranks : {2U, 3U}) {
            compare_steps<float>(1, ranks, 13, 20'011, {1, node::shared_adding::with_update, bytes});
            compare_steps<float>(1, ranks, 13, 20'011, {2, node::shared_adding::ahead, bytes});
            compare_steps<double>(1, ranks, 8, 10'007, {2, node::shared_adding::with_update, bytes});
        }
}

TEST_CASE("node/shared_strips: groups in one memory do not disturb each other, threads change no bit", "[node]") {
    for (const std::size_t groups : {2U, 3U}) compare_steps<float>(groups, 2, 9, 1009);
    for (const int threads : {2, 3}) compare_steps<float>(1, 2, 7, 100'003, {threads});
}

TEST_CASE("node/shared_strips: misuse is an error", "[node]") {
    shared_memory memory{2, 4096};
    auto parts = memory.of(0);
    const auto signal = parts.reserve<node::shared_signal>(1);
    const auto data = parts.mine(parts.reserve<float>(200));
    const node::shared_members members{&parts, {0, 1}, 0, signal};
    const auto make = [&](std::size_t lanes, const std::vector<block>& strips) {
        return node::shared_strips<float>{members, collectives::deal_lanes(2, lanes), strips, 100, {}};
    };
    CHECK_THROWS_AS(make(2, {{0, 50}, {51, 100}}), core::error);
    CHECK_THROWS_AS(make(2, {{0, 50}, {50, 101}}), core::error);
    CHECK_THROWS_AS(make(2, {{0, 100}}), core::error);
    auto average = make(3, {{0, 50}, {50, 100}});
    // Rank 1 has the lanes 1 and 2 of 3, in two nodes: there is one vector for each on every rank.
    CHECK_THROWS_AS(average.start_sum(data.first(100)), core::error);
    std::vector<float> elsewhere(200);
    CHECK_THROWS_AS(average.start_sum(elsewhere), core::error);
    const auto nothing = [](block, std::span<const float>) {};
    CHECK_THROWS_WITH(average.update(data, nothing), Catch::Contains("without a sum"));
    CHECK_THROWS_WITH(average.start_share(), Catch::Contains("before it was updated"));
    average.start_sum(data);
    CHECK_FALSE(average.poll());
    CHECK_THROWS_WITH(average.start_sum(data), Catch::Contains("while it is running"));
    CHECK_THROWS_WITH(average.start_sum(elsewhere), Catch::Contains("while it is running"));
    CHECK_THROWS_WITH(average.update(data, nothing), Catch::Contains("without a sum"));
    CHECK_THROWS_WITH(average.start_share(), Catch::Contains("before it was updated"));

    auto alone = memory.of(1);
    const auto own = alone.mine(alone.reserve<float>(300));
    node::shared_strips<float> single{
        {&alone, {1}, 0, alone.reserve<node::shared_signal>(1)}, collectives::deal_lanes(1, 8), {{{0, 100}}}, 100, {}};
    single.start_sum(own);
    single.finish();
    CHECK_THROWS_AS(single.update(std::span<float>{elsewhere}, nothing), core::error);
    CHECK_THROWS_AS(single.update(own.first(99), nothing), core::error);
    single.update(own, nothing);
    single.start_share();
    CHECK(single.poll());
}
